//! The file format: sections, `key=value`, comments. Knows no key.
//!
//! A line is blank, a comment (`#` or `;` first), `[section]`, or `key=value`. Whitespace around each part and
//! CRLF line ends do not matter. A `#` or `;` after whitespace begins a comment too, unless it is quoted, so that
//! `vip_addr=a;b` is a list. Values are quoted as in a shell only where a key takes arguments.

use crate::finding::{Severity, bare, quoted};

/// One section, merged from every place where its name stands.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: String,
    /// Where it stands first.
    pub line: usize,
    /// In the order of the file; a key that stands twice is here once, with its last value.
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub key: String,
    pub value: String,
    pub line: usize,
}

/// A line that is not as the format wants it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub severity: Severity,
    pub line: usize,
    pub message: String,
    pub hint: &'static str,
}

/// Where entries go while the lines are read.
enum Place {
    /// No section has begun.
    Nowhere,
    /// After a section header that cannot be read: its entries are left out, the header is the finding.
    Lost,
    In(usize),
}

/// Splits `text` into sections; never fails, problems are returned beside what could be read.
pub(crate) fn scan(text: &str) -> (Vec<Section>, Vec<Problem>) {
    let mut sections = Sections::default();
    let mut problems = Vec::new();
    let mut place = Place::Nowhere;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let content = strip_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        let mut report = |severity, message, hint| problems.push(Problem { severity, line, message, hint });
        if let Some(header) = content.strip_prefix('[') {
            place = match section_name(header) {
                Ok(name) => Place::In(sections.enter(name, line, &mut report)),
                Err((message, hint)) => {
                    report(Severity::Error, message, hint);
                    Place::Lost
                }
            };
            continue;
        }
        let Some((key, value)) = content.split_once('=') else {
            let message = format!("{} has no '='", quoted(content));
            report(
                Severity::Error,
                message,
                "write key=value, or begin the line with '#' to make it a comment",
            );
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            let message = format!("there is no key before '=' in {}", quoted(content));
            report(Severity::Error, message, "write key=value");
            continue;
        }
        match place {
            Place::Lost => {}
            Place::Nowhere => report(
                Severity::Error,
                format!("{} stands before the first section", quoted(key)),
                "put it below a line such as [dpdk] or [port0]",
            ),
            Place::In(at) => {
                sections.add(at, Entry { key: key.into(), value: value.into(), line }, &mut report)
            }
        }
    }
    (sections.list, problems)
}

fn section_name(header: &str) -> Result<&str, (String, &'static str)> {
    let Some((name, rest)) = header.split_once(']') else {
        let message = format!("the section {} has no closing ']'", quoted(header));
        return Err((message, "write it as [name]"));
    };
    if !rest.trim().is_empty() {
        let message = format!("there is {} after the section's ']'", quoted(rest.trim()));
        return Err((message, "put it on a line of its own"));
    }
    match name.trim() {
        "" => Err(("the section has no name".into(), "write it as [name]")),
        name => Ok(name),
    }
}

/// The sections so far, with an index of names and keys so that a hostile file costs no quadratic time.
#[derive(Default)]
struct Sections {
    list: Vec<Section>,
    by_name: std::collections::HashMap<String, usize>,
    by_key: std::collections::HashMap<(usize, String), usize>,
}

type Report<'a> = &'a mut dyn FnMut(Severity, String, &'static str);

impl Sections {
    fn enter(&mut self, name: &str, line: usize, report: Report<'_>) -> usize {
        if let Some(&at) = self.by_name.get(name) {
            let first = self.list[at].line;
            let message = format!("the section [{}] is there already in line {first}", bare(name));
            report(Severity::Warning, message, "the two are read as one; join them");
            return at;
        }
        self.list.push(Section { name: name.into(), line, entries: Vec::new() });
        self.by_name.insert(name.into(), self.list.len() - 1);
        self.list.len() - 1
    }

    fn add(&mut self, at: usize, entry: Entry, report: Report<'_>) {
        let section = &mut self.list[at];
        let Some(&earlier) = self.by_key.get(&(at, entry.key.clone())) else {
            self.by_key.insert((at, entry.key.clone()), section.entries.len());
            section.entries.push(entry);
            return;
        };
        let earlier = &mut section.entries[earlier];
        let name = quoted(&entry.key);
        if earlier.value == entry.value {
            let message = format!("{name} is set already in line {}, to the same value", earlier.line);
            report(Severity::Warning, message, "remove one of the two lines");
        } else {
            let message = format!(
                "{name} is set already in line {}, to {} and not to {}",
                earlier.line,
                quoted(&earlier.value),
                quoted(&entry.value)
            );
            report(Severity::Error, message, "remove one of the two lines");
        }
        *earlier = entry;
    }
}

/// Cuts a comment off: `#` or `;` at the start of the line, or after whitespace outside quotes. Quotes are seen
/// as a shell sees them, so that an argument may hold either character.
fn strip_comment(line: &str) -> &str {
    let mut quote = None;
    let mut escaped = false;
    let mut after_space = true;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else {
            match (quote, c) {
                (None, '#' | ';') if after_space => return &line[..at],
                (None | Some('"'), '\\') => escaped = true,
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), _) if open == c => quote = None,
                _ => {}
            }
        }
        after_space = c.is_whitespace();
    }
    line
}
