//! CRC-32C as the kernel computes it for the journal: without inverting the result.

const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[n][b]`: the effect of byte `b` on the checksum if `n` bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Continues a checksum over more bytes. A new one begins with `!0`.
pub(super) fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let value = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = (0..8).fold(0, |sum, n| sum ^ TABLES[7 - n][(value >> (8 * n)) as usize & 0xff]);
    }
    rest.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_standard_check_value() {
        assert_eq!(!update(!0, b"123456789"), 0xE306_9283);
        assert_eq!(update(update(!0, b"12345"), b"6789"), update(!0, b"123456789"));
        assert_eq!(!update(!0, &[0; 32]), 0x8A91_36AA);
    }
}
