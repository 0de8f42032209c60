/*
 * The load inside a VM during a memory snapshot, and the measurement of its pause.
 *
 *   load run FILE   goes to the background: writes memory at a steady rate and ticks every millisecond
 *   load ask FILE   prints its observations since the last question:
 *                   the largest gap between ticks, the bytes written so far, the clock,
 *                   and a second of the real-time clock with the moment at which it began
 *
 * All times are microseconds of the guest's own clock. That clock may stop together with the VM, which its
 * ticker then cannot see. The real-time clock continues, but it can only be read in seconds. So the moment is noted when
 * a second begins, which is as precise as the loop that waits for it is short.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (64u << 20)
#define BYTES_PER_SECOND 20000000ull
#define PAGE 4096u

/* A second that began while the loop was paused is not noted; the loop waits for the next one. */
#define CLOSE_ENOUGH 500
#define ATTEMPTS 90

struct shared {
    _Atomic uint64_t largest;
    _Atomic uint64_t written;
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return (uint64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void rest(long microseconds)
{
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

static struct shared *map(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0)
        return NULL;
    void *shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

static void write_memory(struct shared *shared)
{
    volatile uint64_t *buffer =
        mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return;
    uint64_t start = now(), written = 0;
    for (;;) {
        uint64_t due = (now() - start) * (BYTES_PER_SECOND / 1000000);
        for (; written < due; written += PAGE) {
            volatile uint64_t *page = buffer + written % BUFFER / sizeof *buffer;
            for (unsigned word = 0; word < PAGE / sizeof *buffer; word++)
                page[word] = written + word;
        }
        shared->written = written;
        rest(5000);
    }
}

static void tick(struct shared *shared)
{
    uint64_t last = now();
    for (;;) {
        rest(1000);
        uint64_t time = now();
        if (time - last > shared->largest)
            shared->largest = time - last;
        last = time;
    }
}

static int run(struct shared *shared)
{
    if (daemon(0, 0) != 0)
        return 1;
    switch (fork()) {
    case -1:
        return 1;
    case 0:
        write_memory(shared);
        return 1;
    default:
        tick(shared);
        return 1;
    }
}

/* In binary-coded decimals. */
static int second(void)
{
    outb(0, 0x70);
    return inb(0x71);
}

static int ask(struct shared *shared)
{
    uint64_t largest = shared->largest, written = shared->written, time = now();
    if (ioperm(0x70, 2, 1) != 0)
        return 1;
    int shown = -1, attempts = 0;
    for (uint64_t looked = 0;;) {
        uint64_t before = now();
        int seen = second();
        uint64_t moment = now();
        if (shown != -1 && seen != shown) {
            /* It began after the previous check, and before this one was over. */
            if (moment - looked <= CLOSE_ENOUGH) {
                printf("%lu %lu %lu %x %lu\n", largest, written, time, seen, moment);
                /* This loop may have made the ticker late. */
                shared->largest = 0;
                return 0;
            }
            if (++attempts == ATTEMPTS)
                return 1;
        }
        shown = seen;
        looked = before;
    }
}

int main(int count, char **words)
{
    struct shared *shared = count == 3 ? map(words[2]) : NULL;
    if (shared == NULL)
        return 1;
    return strcmp(words[1], "run") == 0 ? run(shared) : ask(shared);
}
