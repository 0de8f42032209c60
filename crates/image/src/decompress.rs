//! Reads plain, gzip, xz or zstd data, detected by content and not by file name.

use std::io::{self, BufRead, BufReader, Read};

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Large enough for every signature and for efficient reads.
const BUFFER: usize = 256 << 10;

/// A reader of the decompressed contents.
pub(crate) fn reader<'a>(raw: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut raw = BufReader::with_capacity(BUFFER, raw);
    let start = raw.fill_buf()?;
    Ok(if start.starts_with(GZIP) {
        // gzip treats concatenated members as one file, and parallel compressors write them.
        Box::new(flate2::bufread::MultiGzDecoder::new(raw))
    } else if start.starts_with(XZ) {
        Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(raw))
    } else if start.starts_with(ZSTD) {
        Box::new(zstd::stream::read::Decoder::with_buffer(raw)?)
    } else {
        Box::new(raw)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        reader(bytes).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn compression_is_detected_by_content() {
        let text = b"contents".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        xz.write_all(&text).unwrap();
        assert_eq!(read(&gzip.finish().unwrap()), text);
        assert_eq!(read(&xz.finish().unwrap()), text);
        assert_eq!(read(&zstd::encode_all(text.as_slice(), 1).unwrap()), text);
        assert_eq!(read(&text), text);
        assert_eq!(read(b""), b"");
    }
}
