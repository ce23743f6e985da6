//! Text to configuration and findings: walks the key table over what the file has.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::check;
use crate::device::Device;
use crate::finding::{Finding, Severity, bare, quoted};
use crate::ini;
use crate::keys::{self, Key, SECTIONS, Section, Status};
use crate::nearest::nearest;
use crate::port::Port;
use crate::settings::Config;
use crate::value::PORT_NUMBER_MAX;

/// A configuration and everything that was found while reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What was read. Where there is an error, a key has its default: do not start with it.
    pub config: Config,
    /// In the order of the file; what is about no line comes last.
    pub findings: Vec<Finding>,
}

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The operating system refused.
    #[error("cannot read the configuration {file}: {source}")]
    Read {
        /// The file as it was named.
        file: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A directory, a FIFO, a device.
    #[error("the configuration {file} is no regular file: name the f-stack.conf itself")]
    NotAFile {
        /// The file as it was named.
        file: String,
    },
    /// Larger than [`FILE_BYTES_MAX`].
    #[error("the configuration {file} is larger than {FILE_BYTES_MAX} bytes: that is no f-stack.conf")]
    TooLarge {
        /// The file as it was named.
        file: String,
    },
    /// Not UTF-8.
    #[error("the configuration {file} is no UTF-8 text (byte {offset}): save it as UTF-8")]
    NotText {
        /// The file as it was named.
        file: String,
        /// Offset of the first byte that is wrong.
        offset: usize,
    },
}

/// A longer file is refused unread.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

impl Checked {
    /// Whether the instance must not start.
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// The findings that keep the instance from starting.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }
}

impl Config {
    /// Reads `text`; `file_name` is what findings call it. Pure: the same text gives the same result anywhere.
    pub fn parse(file_name: &str, text: &str) -> Checked {
        let (sections, problems) = ini::scan(text);
        let mut reader = Reader {
            config: Config::default(),
            findings: Findings { file: file_name.to_owned(), list: Vec::new() },
            lines: Lines::default(),
        };
        for problem in problems {
            reader.findings.push(problem.severity, problem.line, problem.message, problem.hint);
        }
        reader.read(&sections);
        let Reader { mut config, mut findings, lines } = reader;
        derive_defaults(&mut config, &lines);
        check::check(&mut config, &lines, &mut findings);
        findings.list.sort_by_key(|finding| (finding.line == 0, finding.line));
        Checked { config, findings: findings.list }
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When there is no text to look at; what is wrong *in* the text is in the findings.
    pub fn load(path: impl AsRef<Path>) -> Result<Checked, LoadError> {
        use std::io::Read;
        let file = path.as_ref().display().to_string();
        let mut bytes = Vec::new();
        // Opening a FIFO would wait for somebody to write into it.
        if std::fs::metadata(path.as_ref()).is_ok_and(|it| !it.is_file()) {
            return Err(LoadError::NotAFile { file });
        }
        std::fs::File::open(path.as_ref())
            .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|source| LoadError::Read { file: file.clone(), source })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(LoadError::TooLarge { file });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Config::parse(&file, &text)),
            Err(error) => Err(LoadError::NotText { file, offset: error.utf8_error().valid_up_to() }),
        }
    }
}

/// Findings while they are gathered.
pub(crate) struct Findings {
    file: String,
    list: Vec<Finding>,
}

impl Findings {
    pub fn push(
        &mut self,
        severity: Severity,
        line: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.list.push(Finding {
            severity,
            file: self.file.clone(),
            line,
            message: message.into(),
            hint: hint.into(),
        });
    }

    pub fn error(&mut self, line: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Severity::Error, line, message, hint);
    }

    pub fn warning(&mut self, line: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Severity::Warning, line, message, hint);
    }
}

/// Where sections and keys stand in the file.
#[derive(Default)]
pub(crate) struct Lines {
    sections: HashMap<String, usize>,
    keys: HashMap<(String, &'static str), usize>,
    /// Keys whose value could not be read; what depends on them is not judged.
    wrong: HashSet<(String, &'static str)>,
}

impl Lines {
    /// The line of the key, of its section when the key is not there, or 0.
    pub fn of(&self, section: &str, key: &'static str) -> usize {
        self.key(section, key).or_else(|| self.sections.get(section).copied()).unwrap_or(0)
    }

    /// The line of the key, when it is there.
    pub fn key(&self, section: &str, key: &'static str) -> Option<usize> {
        self.keys.get(&(section.to_owned(), key)).copied()
    }

    /// Whether the key is there with a value that could not be read.
    pub fn is_wrong(&self, section: &str, key: &'static str) -> bool {
        self.wrong.contains(&(section.to_owned(), key))
    }
}

struct Reader {
    config: Config,
    findings: Findings,
    lines: Lines,
}

impl Reader {
    fn read(&mut self, sections: &[ini::Section]) {
        let mut known: Vec<(usize, u32, &'static Section, &ini::Section)> = Vec::new();
        for found in sections {
            match keys::section(&found.name) {
                Some((spec, number)) => {
                    let place = SECTIONS.iter().position(|section| std::ptr::eq(*section, spec)).unwrap_or(0);
                    known.push((place, number, spec, found));
                }
                None => self.unknown_section(found),
            }
        }
        // The table's order, not the file's, decides which of two names for one field counts.
        known.sort_by_key(|&(place, number, _, _)| (place, number));
        for (_, number, spec, found) in known {
            self.section(spec, number, found);
        }
    }

    fn unknown_section(&mut self, found: &ini::Section) {
        let patterns: Vec<String> = SECTIONS.iter().map(|section| section.pattern()).collect();
        let hint = match nearest(&found.name, patterns.iter().map(String::as_str)) {
            Some(name) => format!("did you mean [{name}]? It is left out"),
            None => "it is left out".into(),
        };
        self.findings.warning(found.line, format!("there is no section {}", quoted(&found.name)), hint);
    }

    fn section(&mut self, spec: &'static Section, number: u32, found: &ini::Section) {
        self.lines.sections.insert(found.name.clone(), found.line);
        let mut at = 0;
        if spec.name == "port" {
            if number > u32::from(PORT_NUMBER_MAX) || found.name != format!("port{number}") {
                let message = format!("[{}] is no port", bare(&found.name));
                self.findings.error(
                    found.line,
                    message,
                    format!("ports are [port0] to [port{PORT_NUMBER_MAX}]"),
                );
                return;
            }
            self.config.ports.push(Port::new(number as u16));
            at = self.config.ports.len() - 1;
        }
        if let Some(text) = status_text(spec.status) {
            self.findings.warning(
                found.line,
                format!("[{}] {text}", bare(&found.name)),
                "its keys are left out",
            );
        }
        let mut entries: HashMap<&str, &ini::Entry> = HashMap::new();
        for entry in &found.entries {
            match spec.key(&entry.key) {
                Some(key) => {
                    self.lines.keys.insert((found.name.clone(), key.name), entry.line);
                    entries.insert(key.name, entry);
                }
                None => self.unknown_key(spec, &found.name, entry),
            }
        }
        if spec.status != Status::Works {
            return;
        }
        for key in spec.keys {
            if let Some(entry) = entries.get(key.name) {
                self.key(&found.name, at, key, entry);
            }
        }
    }

    fn unknown_key(&mut self, spec: &'static Section, section: &str, entry: &ini::Entry) {
        let near = nearest(&entry.key, spec.keys.iter().map(|key| key.name));
        let elsewhere =
            SECTIONS.iter().find(|other| !other.keys.is_empty() && other.key(&entry.key).is_some());
        let hint = match (elsewhere, near) {
            (Some(other), _) => format!("it belongs to [{}] and is left out here", other.pattern()),
            (None, Some(name)) => format!("did you mean {name}? It is left out"),
            (None, None) => "it is left out".into(),
        };
        let (section, name) = (bare(section), quoted(&entry.key));
        let message = match spec.open {
            true => format!("[{section}] {name} has no counterpart in this stack and no effect"),
            false => format!("[{section}] has no key {name}"),
        };
        self.findings.warning(entry.line, message, hint);
    }

    fn key(&mut self, section: &str, at: usize, key: &'static Key, entry: &ini::Entry) {
        if let Some(text) = status_text(key.status) {
            self.findings.warning(entry.line, format!("[{section}] {} {text}", key.name), "");
            return;
        }
        let Some(set) = key.set else { return };
        if let Err(wrong) = set(&mut self.config, at, &key.kind, &entry.value) {
            let message = format!("[{section}] {}: {wrong}", key.name);
            let default = match key.default {
                "" => String::new(),
                derived if derived.starts_with('(') => format!(", or remove the line {derived}"),
                text => format!(", or remove the line for the default {text}"),
            };
            self.findings.error(entry.line, message, format!("allowed: {}{default}", key.kind.allowed()));
            self.lines.wrong.insert((section.to_owned(), key.name));
        }
    }
}

/// What a warning says of a key or section that does not work; None of one that does.
fn status_text(status: Status) -> Option<String> {
    match status {
        Status::Works => None,
        Status::NoEffect(reason) => Some(format!("is accepted without effect: {reason}")),
        Status::NotApplicable(reason) => Some(format!("is not applicable: {reason}")),
    }
}

/// Fills in the defaults that depend on other keys.
fn derive_defaults(config: &mut Config, lines: &Lines) {
    let name = &config.instance.name;
    if lines.key("instance", "runtime_dir").is_none() {
        config.instance.runtime_dir = format!("/run/ffstack/{name}").into();
    }
    if lines.key("dpdk", "file_prefix").is_none() {
        config.dpdk.file_prefix = format!("ff_{name}");
    }
    for port in &mut config.ports {
        let number = port.number;
        if lines.key(&format!("port{number}"), "device").is_none() {
            // DPDK numbers its ports in the order of the allow-list, as F-Stack's users know it.
            let allowed = config.dpdk.allow.get(usize::from(number));
            port.device =
                allowed.map_or_else(|| Device::default_for(number), |&address| Device::Pci(address));
        }
    }
}
