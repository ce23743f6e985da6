//! The doors between the rooms that must stay shut (`docs/architecture.md`), checked over `cargo metadata`:
//! what a crate may not name in its `[dependencies]`, and what it may not reach through crates of ours.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Normal and build dependencies of each package of the workspace.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let names = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| dependency["name"].as_str().expect("a name").to_owned())
                .collect();
            (package["name"].as_str().expect("a name").to_owned(), names)
        })
        .collect()
}

/// All crates of ours that `start` reaches, itself included.
fn reach(all: &BTreeMap<String, BTreeSet<String>>, start: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![start.to_owned()];
    while let Some(name) = next.pop() {
        if all.contains_key(&name) && seen.insert(name.clone()) {
            next.extend(all[&name].iter().cloned());
        }
    }
    seen
}

/// Violations of "none of `crates`, nor what they reach among ours, names one of `forbidden`".
fn violations(all: &BTreeMap<String, BTreeSet<String>>, crates: &[&str], forbidden: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for start in crates {
        assert!(all.contains_key(*start), "the workspace has no crate {start}");
        for name in reach(all, start) {
            found.extend(
                all[&name]
                    .iter()
                    .filter(|dependency| forbidden.contains(&dependency.as_str()))
                    .map(|dependency| format!("{start} -> {name} -> {dependency}")),
            );
        }
    }
    found
}

const SYSTEM: [&str; 10] =
    ["libc", "nix", "rustix", "memmap2", "mio", "tokio", "socket2", "ff-dpdk", "ff-dpdk-sys", "bindgen"];

#[test]
fn pure_crates_know_no_system_and_no_dpdk() {
    let all = dependencies();
    let found = violations(&all, &["ff-tcp", "ff-flowmap", "ff-handover", "ff-config"], &SYSTEM);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_the_dpdk_layer_names_the_bindings() {
    let all = dependencies();
    let named: Vec<_> =
        all.iter().filter(|(_, names)| names.contains("ff-dpdk-sys")).map(|(name, _)| name).collect();
    assert_eq!(named, ["ff-dpdk"]);
}

#[test]
fn the_primary_knows_no_tcp() {
    let all = dependencies();
    let direct = &all["ff-primary"];
    assert!(!direct.contains("ff-tcp"), "ff-primary names ff-tcp");
}

#[test]
fn ffctl_and_the_control_protocol_know_no_dpdk() {
    let all = dependencies();
    let found =
        violations(&all, &["ffctl", "ff-control"], &["ff-dpdk", "ff-dpdk-sys", "ff-dataplane", "ff-tcp"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_open_door_is_seen() {
    let edge =
        |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|name| (*name).to_owned()).collect());
    let all = BTreeMap::from([edge("a", &["b", "serde"]), edge("b", &["libc"])]);
    assert_eq!(violations(&all, &["a"], &SYSTEM), ["a -> b -> libc"]);
}
