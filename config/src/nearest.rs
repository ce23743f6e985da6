//! The known name that an unknown one was probably meant to be.

/// Names longer than this are not compared: nobody typed them.
const BYTES_MAX: usize = 64;

/// The candidate with the fewest edits from `name` (insertions, deletions, substitutions, swaps of neighbours),
/// when these are few for its length: at most one, and one more for every four characters. Upper and lower case
/// count as the same.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > BYTES_MAX {
        return None;
    }
    let name = name.to_lowercase();
    let edits_max = 1 + name.chars().count() / 4;
    candidates
        .map(|candidate| (strsim::osa_distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|&(edits, candidate)| edits <= edits_max && edits < candidate.len())
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}
