//! Bytes that can be checked anywhere in a stream: the byte at an offset follows from a seed and the offset,
//! so a lost, doubled, moved or foreign byte is found with its place, at memory speed.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

const WORD: u64 = 8;

/// Writes the bytes at `offset..` of the stream `seed` into `buf`.
pub fn fill(seed: u64, offset: u64, buf: &mut [u8]) {
    let mut at = offset;
    let mut rest = buf;
    while !rest.is_empty() {
        let skip = (at % WORD) as usize;
        let bytes = word(seed, at / WORD).to_le_bytes();
        let take = rest.len().min(bytes.len() - skip);
        let (head, tail) = rest.split_at_mut(take);
        head.copy_from_slice(&bytes[skip..skip + take]);
        rest = tail;
        at += take as u64;
    }
}

/// Checks bytes of the stream; `Err` is the offset of the first that is wrong.
///
/// # Errors
/// The offset of the first wrong byte.
pub fn check(seed: u64, offset: u64, bytes: &[u8]) -> Result<(), u64> {
    let mut want = [0_u8; 4096];
    let mut at = offset;
    for chunk in bytes.chunks(want.len()) {
        let want = &mut want[..chunk.len()];
        fill(seed, at, want);
        if want != chunk {
            let wrong = want.iter().zip(chunk).position(|(a, b)| a != b).unwrap_or(0);
            return Err(at + wrong as u64);
        }
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Writes the first `len` bytes of the stream into a file.
///
/// # Errors
/// Those of the file.
pub fn write_file(path: &Path, seed: u64, len: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut buf = vec![0_u8; 1 << 20];
    let mut at = 0;
    while at < len {
        let take = (len - at).min(buf.len() as u64) as usize;
        fill(seed, at, &mut buf[..take]);
        file.write_all(&buf[..take])?;
        at += take as u64;
    }
    file.flush()
}

/// Checks that a file holds exactly the first `len` bytes of the stream.
///
/// # Errors
/// Those of the file; a sentence about the first difference.
pub fn check_file(path: &Path, seed: u64, len: u64) -> Result<(), crate::Failure> {
    let mut file = File::open(path)?;
    let mut buf = vec![0_u8; 1 << 20];
    let mut at = 0_u64;
    loop {
        let got = file.read(&mut buf)?;
        if got == 0 {
            break;
        }
        check(seed, at, &buf[..got])
            .map_err(|at| format!("{}: the byte at offset {at} is wrong", path.display()))?;
        at += got as u64;
    }
    crate::ensure!(at == len, "{} has {at} bytes instead of {len}", path.display());
    Ok(())
}

/// splitmix64 of the word's number: every word differs from its neighbours and from those of other seeds.
fn word(seed: u64, index: u64) -> u64 {
    let mut z =
        seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{check, fill};

    #[test]
    fn any_piece_equals_the_whole() {
        let mut whole = vec![0; 10_000];
        fill(7, 0, &mut whole);
        for (from, to) in [(0, 1), (3, 9), (4095, 4097), (1234, 9999)] {
            let mut piece = vec![0; to - from];
            fill(7, from as u64, &mut piece);
            assert_eq!(piece, whole[from..to]);
            assert_eq!(check(7, from as u64, &piece), Ok(()));
        }
    }

    #[test]
    fn a_wrong_byte_is_found_at_its_place() {
        let mut bytes = vec![0; 9_000];
        fill(1, 500, &mut bytes);
        bytes[8_000] ^= 1;
        assert_eq!(check(1, 500, &bytes), Err(8_500));
        assert!(check(2, 500, &bytes[..16]).is_err());
    }
}
