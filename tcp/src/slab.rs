//! Slots with generations, in chunks that never move: growth copies nothing.

const CHUNK: usize = 64;
const NONE: u32 = u32::MAX;

/// A whole number of cache lines, so that what a value puts together in one
/// stays in one.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// A table of `T` by index. An index that was freed is used again, under
/// another generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[Slot<T>]>>,
    first_free: u32,
    len: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), first_free: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK).map(|c| &c[index as usize % CHUNK])
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK).map(|c| &mut c[index as usize % CHUNK])
    }

    /// Puts a value in; returns index and generation.
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        if self.first_free == NONE {
            let base = (self.chunks.len() * CHUNK) as u32;
            let last = base + CHUNK as u32 - 1;
            let chunk = (base..=last)
                .map(|i| Slot { value: None, generation: 0, next_free: if i == last { NONE } else { i + 1 } })
                .collect();
            self.chunks.push(chunk);
            self.first_free = base;
        }
        let index = self.first_free;
        self.len += 1;
        let slot = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
        slot.generation = slot.generation.wrapping_add(1);
        let generation = slot.generation;
        let next = slot.next_free;
        slot.value = Some(value);
        self.first_free = next;
        (index, generation)
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let first_free = self.first_free;
        let slot = self.slot_mut(index)?;
        let value = slot.value.take()?;
        slot.next_free = first_free;
        self.first_free = index;
        self.len -= 1;
        Some(value)
    }

    /// The generation of what is at `index` now.
    pub(crate) fn generation(&self, index: u32) -> Option<u32> {
        self.slot(index).filter(|s| s.value.is_some()).map(|s| s.generation)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// The value, if it is still of this generation.
    #[inline]
    pub(crate) fn get_checked(&self, index: u32, generation: u32) -> Option<&T> {
        self.slot(index).filter(|s| s.generation == generation)?.value.as_ref()
    }

    /// The value, if it is still of this generation.
    #[inline]
    pub(crate) fn get_checked_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        self.slot_mut(index).filter(|s| s.generation == generation)?.value.as_mut()
    }

    /// All values with index and generation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        self.chunks.iter().enumerate().flat_map(|(c, chunk)| {
            chunk
                .iter()
                .enumerate()
                .filter_map(move |(i, s)| s.value.as_ref().map(|v| ((c * CHUNK + i) as u32, s.generation, v)))
        })
    }
}
