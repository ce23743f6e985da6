//! All cases, in the order they run.

mod conformance;
mod faults;
mod ffctl;
mod http;
mod idle;
mod kills;
mod load;
mod nginx;
mod programs;
mod quickstart;
mod reload;
mod tcp;
mod transfer;

use crate::case::Case;

/// Every case, named; names are never reused.
pub fn all() -> Vec<Case> {
    [
        programs::cases(),
        http::cases(),
        tcp::cases(),
        transfer::cases(),
        load::cases(),
        idle::cases(),
        conformance::cases(),
        nginx::cases(),
        ffctl::cases(),
        faults::cases(),
        kills::cases(),
        reload::cases(),
        quickstart::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_name_is_used_twice() {
        let mut names: Vec<_> = super::all().iter().map(|case| case.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
