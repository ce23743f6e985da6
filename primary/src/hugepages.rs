//! Whether there are enough hugepages, said before DPDK says it in its own words.

use std::fs;
use std::path::{Path, PathBuf};

/// About what DPDK takes for a buffer besides its data room: mempool header, mbuf, free list, what is lost at the end
/// of a page.
const MBUF_OVERHEAD_BYTES: u64 = 320;
/// A ring's header, and its memzone.
const RING_OVERHEAD_BYTES: u64 = 512;
/// DPDK itself, a driver, and what each start of a worker takes for a moment.
const DPDK_BYTES: u64 = 12 << 20;

/// What an instance takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Mempools.
    pub pools: u32,
    /// Buffers of each.
    pub mbufs: u32,
    /// Data room of a buffer in bytes.
    pub data_room_bytes: u16,
    /// Rings.
    pub rings: u32,
    /// Slots of all rings together.
    pub ring_slots: u64,
    /// The protocol region.
    pub region_bytes: u64,
}

impl Need {
    /// Hugepages of `page_bytes`; the region and DPDK share none.
    pub fn pages(&self, page_bytes: u64) -> u64 {
        self.dpdk_bytes().div_ceil(page_bytes) + self.region_bytes.div_ceil(page_bytes)
    }

    /// What DPDK takes. It is taken at once: memory that DPDK gets later, it also gives back, and then a worker that
    /// starts has to ask the primary for some, which is slow and fails when another worker dies meanwhile.
    pub fn dpdk_bytes(&self) -> u64 {
        let pool = u64::from(self.mbufs) * (u64::from(self.data_room_bytes) + MBUF_OVERHEAD_BYTES);
        let rings = self.ring_slots * 8 + u64::from(self.rings) * RING_OVERHEAD_BYTES;
        u64::from(self.pools) * pool + rings + DPDK_BYTES
    }
}

/// Why there are not enough.
#[derive(Debug, thiserror::Error)]
pub enum HugepageError {
    /// Nothing there.
    #[error(
        "no hugepages are mounted on {0}: mkdir -p {0} && mount -t hugetlbfs nodev {0}",
        directory.display()
    )]
    NotMounted {
        /// Where they should be.
        directory: PathBuf,
    },
    /// Too few.
    #[error(
        "the instance needs about {needed} hugepages of {page_kib} KiB, {free} are free: sysctl vm.nr_hugepages={}, \
         or smaller [limits]", total + needed - free
    )]
    TooFew {
        /// Pages needed.
        needed: u64,
        /// Pages free.
        free: u64,
        /// Pages there are.
        total: u64,
        /// Their size.
        page_kib: u64,
    },
}

/// The hugepages behind a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hugepages {
    /// Size of one.
    pub page_bytes: u64,
    free: u64,
    total: u64,
}

impl Hugepages {
    /// Those mounted on `directory`.
    ///
    /// # Errors
    /// [`HugepageError::NotMounted`].
    pub fn of(directory: &Path) -> Result<Self, HugepageError> {
        let not_mounted = || HugepageError::NotMounted { directory: directory.to_owned() };
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let page_kib = page_kib(&mounts, directory).ok_or_else(not_mounted)?;
        let count = |name: &str| {
            let path =
                Path::new("/sys/kernel/mm/hugepages").join(format!("hugepages-{page_kib}kB")).join(name);
            fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0_u64)
        };
        // Reserved pages are promised to somebody, though still counted as free.
        let free = count("free_hugepages").saturating_sub(count("resv_hugepages"));
        Ok(Self { page_bytes: page_kib << 10, free, total: count("nr_hugepages") })
    }

    /// Fails when `need` does not fit.
    ///
    /// # Errors
    /// [`HugepageError::TooFew`].
    pub fn check(&self, need: &Need) -> Result<(), HugepageError> {
        let needed = need.pages(self.page_bytes);
        if needed <= self.free {
            return Ok(());
        }
        let page_kib = self.page_bytes >> 10;
        Err(HugepageError::TooFew { needed, free: self.free, total: self.total, page_kib })
    }
}

fn page_kib(mounts: &str, directory: &Path) -> Option<u64> {
    // The last one counts: it lies over the others.
    let options = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (target, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (Path::new(target) == directory && kind == "hugetlbfs").then_some(options)
    })?;
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_kib = match &size[digits.len()..] {
        "K" => 1,
        "M" => 1 << 10,
        "G" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn need_in_pages() {
        let need = Need {
            pools: 10,
            mbufs: 8_192,
            data_room_bytes: 2_176,
            rings: 56,
            ring_slots: 56 * 2_048,
            region_bytes: 100 << 20,
        };
        // 10 pools of 19.5 MiB, rings of 0.9 MiB, 12 MiB: not quite 208 MiB; and the region.
        assert_eq!(need.dpdk_bytes() >> 20, 207);
        assert_eq!(need.pages(2 << 20), 104 + 50);
        assert_eq!(need.pages(1 << 30), 2);
    }

    #[test]
    fn the_sentence_has_the_command() {
        let need = Need {
            pools: 1,
            mbufs: 1,
            data_room_bytes: 2_176,
            rings: 0,
            ring_slots: 0,
            region_bytes: 1 << 30,
        };
        let pages = Hugepages { page_bytes: 2 << 20, free: 100, total: 512 };
        let sentence = pages.check(&need).unwrap_err().to_string();
        assert!(sentence.contains("519 hugepages") && sentence.contains("100 are free"), "{sentence}");
        assert!(sentence.contains("sysctl vm.nr_hugepages=931"), "{sentence}");
        assert!(Hugepages { free: 519, ..pages }.check(&need).is_ok());
        assert!(Hugepages { free: 518, ..pages }.check(&need).is_err());
    }

    #[test]
    fn a_mount_and_its_page_size() {
        let mounts = "nodev /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n";
        assert_eq!(page_kib(mounts, Path::new("/dev/hugepages")), Some(2_048));
        assert_eq!(page_kib(mounts, Path::new("/dev/huge")), None);
    }
}
