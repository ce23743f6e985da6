//! The arguments of EAL, chosen in one pure function.

/// Everything that decides EAL's arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EalConfig {
    /// Names the instance: all processes with the same prefix share one DPDK.
    pub file_prefix: String,
    /// Primary or secondary, and what only one of them has.
    pub role: Role,
    /// EAL's number for this process's only data-plane thread, unique in the instance.
    pub lcore: u16,
    /// CPUs that this thread may run on; it is pinned to them.
    pub cpus: Vec<u16>,
    /// PCI addresses that DPDK may touch; none: DPDK does not look at the PCI bus.
    pub pci: Vec<String>,
    /// DPDK's log level, 1 (emergency) to 8 (debug).
    pub log_level: u8,
    /// Further arguments, as a person wrote them; the last word.
    pub extra: Vec<String>,
}

/// What a process is in the instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Creates everything. One per instance.
    Primary {
        /// Hugepage memory to take at the start, in MiB; it grows on demand beyond that.
        memory_mib: u32,
        /// Devices to create, in EAL's syntax.
        vdevs: Vec<String>,
    },
    /// Uses what the primary created.
    Secondary,
}

/// Why no arguments can be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EalArgsError {
    /// The prefix becomes a part of file names.
    #[error("{0:?} is no name for an instance: 1 to 32 letters, digits, '-', '_' or '.'")]
    Prefix(String),
    /// Nowhere to run.
    #[error("lcore {0} has no CPU to run on")]
    NoCpu(u16),
    /// Beyond DPDK.
    #[error("lcore {0} is too large: DPDK has {max}", max = crate::names::LCORES_MAX)]
    Lcore(u16),
}

/// Whether a file prefix can be a part of DPDK's file names.
pub fn is_file_prefix(prefix: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=32).contains(&prefix.len()) && prefix.chars().all(is_good) && !prefix.starts_with('.')
}

/// The command line for `rte_eal_init`, program name first.
///
/// # Errors
/// When the configuration cannot be said to EAL.
pub fn arguments(config: &EalConfig) -> Result<Vec<String>, EalArgsError> {
    if !is_file_prefix(&config.file_prefix) {
        return Err(EalArgsError::Prefix(config.file_prefix.clone()));
    }
    if config.cpus.is_empty() {
        return Err(EalArgsError::NoCpu(config.lcore));
    }
    if u32::from(config.lcore) >= crate::names::LCORES_MAX {
        return Err(EalArgsError::Lcore(config.lcore));
    }
    let cpus: Vec<String> = config.cpus.iter().map(u16::to_string).collect();
    let mut arguments = vec![
        "ff".to_owned(),
        format!("--file-prefix={}", config.file_prefix),
        format!("--lcores={}@({})", config.lcore, cpus.join(",")),
        format!("--log-level={}", config.log_level),
        // One file and one descriptor for all hugepages of a kind, not one for each page.
        "--single-file-segments".to_owned(),
        "--no-telemetry".to_owned(),
    ];
    match &config.role {
        Role::Primary { memory_mib, vdevs } => {
            arguments.push("--proc-type=primary".to_owned());
            if *memory_mib > 0 {
                arguments.push(format!("-m{memory_mib}"));
            }
            arguments.extend(vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
        }
        Role::Secondary => arguments.push("--proc-type=secondary".to_owned()),
    }
    if config.pci.is_empty() {
        arguments.push("--no-pci".to_owned());
    }
    arguments.extend(config.pci.iter().map(|address| format!("--allow={address}")));
    arguments.extend(config.extra.iter().cloned());
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(role: Role) -> EalConfig {
        EalConfig {
            file_prefix: "default".into(),
            role,
            lcore: 3,
            cpus: vec![1],
            pci: vec![],
            log_level: 4,
            extra: vec![],
        }
    }

    #[test]
    fn primary_without_pci() {
        let role = Role::Primary { memory_mib: 64, vdevs: vec!["net_null0".into()] };
        assert_eq!(
            arguments(&config(role)).unwrap(),
            [
                "ff",
                "--file-prefix=default",
                "--lcores=3@(1)",
                "--log-level=4",
                "--single-file-segments",
                "--no-telemetry",
                "--proc-type=primary",
                "-m64",
                "--vdev=net_null0",
                "--no-pci",
            ]
        );
    }

    #[test]
    fn secondary_with_pci_and_several_cpus() {
        let mut config = config(Role::Secondary);
        config.pci = vec!["0000:00:06.0".into()];
        config.cpus = vec![0, 1];
        config.extra = vec!["--iova-mode=va".into()];
        let arguments = arguments(&config).unwrap();
        assert!(arguments.contains(&"--proc-type=secondary".to_owned()));
        assert!(arguments.contains(&"--lcores=3@(0,1)".to_owned()));
        assert!(arguments.contains(&"--allow=0000:00:06.0".to_owned()));
        assert!(!arguments.contains(&"--no-pci".to_owned()));
        assert_eq!(arguments.last().unwrap(), "--iova-mode=va");
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        let refused = |change: fn(&mut EalConfig)| {
            let mut config = config(Role::Secondary);
            change(&mut config);
            arguments(&config).unwrap_err()
        };
        assert!(matches!(refused(|c| c.file_prefix = "../x".into()), EalArgsError::Prefix(_)));
        assert!(matches!(refused(|c| c.file_prefix = String::new()), EalArgsError::Prefix(_)));
        assert!(matches!(refused(|c| c.file_prefix = "..".into()), EalArgsError::Prefix(_)));
        assert!(matches!(refused(|c| c.cpus.clear()), EalArgsError::NoCpu(3)));
        assert!(matches!(refused(|c| c.lcore = 128), EalArgsError::Lcore(128)));
    }
}
