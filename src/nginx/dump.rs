//! What `nginx -T` prints, read for the few settings that decide how an instance is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many workers the configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerProcesses {
    /// `auto`: one for each CPU that is online.
    Auto,
    /// That many.
    Count(u32),
}

/// Settings of nginx's main context; a field is what nginx does when the directive is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MainSettings {
    /// `worker_processes`.
    pub worker_processes: WorkerProcesses,
    /// `daemon`.
    pub daemon: bool,
    /// `master_process`.
    pub master_process: bool,
    /// `pid`, as it is written; `None`: as compiled in.
    pub pid: Option<PathBuf>,
    /// The first `error_log`, as it is written; `None`: as compiled in.
    pub error_log: Option<PathBuf>,
    /// `worker_shutdown_timeout` in milliseconds.
    pub worker_shutdown_timeout_ms: Option<u64>,
}

impl Default for MainSettings {
    fn default() -> Self {
        Self {
            worker_processes: WorkerProcesses::Count(1),
            daemon: true,
            master_process: true,
            pid: None,
            error_log: None,
            worker_shutdown_timeout_ms: None,
        }
    }
}

/// Why the dump cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// No file in it.
    #[error("nginx -T printed no configuration")]
    Empty,
    /// A value that nginx itself would not have accepted.
    #[error("{}: the value of `{directive}` is not understood: {value:?}", file.display())]
    Value {
        /// File.
        file: PathBuf,
        /// Directive.
        directive: String,
        /// Its argument.
        value: String,
    },
}

/// Reads a dump. The first file is the main one; files are followed from its main context on only, because a
/// directive's name may be anything inside of a block (a `map`, for example).
///
/// # Errors
/// [`DumpError`].
pub fn parse(dump: &str) -> Result<MainSettings, DumpError> {
    let (main, files) = split(dump).ok_or(DumpError::Empty)?;
    let mut settings = MainSettings::default();
    let directory = main.parent().unwrap_or(Path::new("/")).to_owned();
    let mut todo = vec![main];
    // nginx itself refuses an include loop; each file is read once in any case.
    let mut done = Vec::new();
    while let Some(path) = todo.pop() {
        if done.contains(&path) {
            continue;
        }
        let text = files.get(&path).map(String::as_str).unwrap_or_default();
        for directive in main_context(text) {
            match directive.as_slice() {
                [name, pattern] if name == "include" => {
                    let pattern = directory.join(pattern);
                    let matcher = glob::Pattern::new(&pattern.to_string_lossy());
                    todo.extend(
                        files
                            .keys()
                            .filter(|file| {
                                **file == pattern || matcher.as_ref().is_ok_and(|m| m.matches_path(file))
                            })
                            .cloned(),
                    );
                }
                // It may have a level beside its file.
                [name, file, ..] if name == "error_log" => {
                    settings.error_log.get_or_insert_with(|| file.into());
                }
                [name, value] => apply(&mut settings, name, value).ok_or_else(|| DumpError::Value {
                    file: path.clone(),
                    directive: name.clone(),
                    value: value.clone(),
                })?,
                _ => {}
            }
        }
        done.push(path);
    }
    Ok(settings)
}

/// The sockets in the file system that any `listen` of a dump names.
pub fn unix_listeners(dump: &str) -> Vec<PathBuf> {
    let mut words: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for (_, text) in split(dump).into_iter().flat_map(|(_, files)| files) {
        words.clear();
        for token in (Tokens { rest: &text }) {
            match token {
                Token::Word(word) => words.push(word),
                Token::End | Token::Open | Token::Close => {
                    if let [name, address, ..] = words.as_slice()
                        && name == "listen"
                        && let Some(path) = address.strip_prefix("unix:")
                    {
                        found.push(PathBuf::from(path));
                    }
                    words.clear();
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Applies what is given to nginx with `-g`, which a dump does not show.
///
/// # Errors
/// [`DumpError::Value`].
pub fn apply_global(settings: &mut MainSettings, text: &str) -> Result<(), DumpError> {
    for directive in main_context(text) {
        if let [name, value] = directive.as_slice() {
            apply(settings, name, value).ok_or_else(|| DumpError::Value {
                file: "-g".into(),
                directive: name.clone(),
                value: value.clone(),
            })?;
        }
    }
    Ok(())
}

fn apply(settings: &mut MainSettings, name: &str, value: &str) -> Option<()> {
    match name {
        "worker_processes" => {
            settings.worker_processes = match value {
                "auto" => WorkerProcesses::Auto,
                count => WorkerProcesses::Count(count.parse().ok()?),
            };
        }
        "daemon" => settings.daemon = flag(value)?,
        "master_process" => settings.master_process = flag(value)?,
        "pid" => settings.pid = Some(value.into()),
        "worker_shutdown_timeout" => settings.worker_shutdown_timeout_ms = Some(duration_ms(value)?),
        _ => {}
    }
    Some(())
}

fn flag(value: &str) -> Option<bool> {
    match value {
        _ if value.eq_ignore_ascii_case("on") => Some(true),
        _ if value.eq_ignore_ascii_case("off") => Some(false),
        _ => None,
    }
}

/// A time as nginx writes it: `90`, `90s`, `1m30s`, `1h 5m`, `1500ms`; a bare number is seconds.
fn duration_ms(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let value: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit_ms: u64 = match &rest[..letters] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(value.checked_mul(unit_ms)?)?;
    }
    Some(total)
}

/// The main file's name, and every file's text.
fn split(dump: &str) -> Option<(PathBuf, BTreeMap<PathBuf, String>)> {
    let mut main = None;
    let mut current: Option<PathBuf> = None;
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix("# configuration file ").and_then(|rest| rest.strip_suffix(':'))
        {
            main.get_or_insert_with(|| PathBuf::from(name));
            current = Some(name.into());
            files.entry(name.into()).or_default();
        } else if let Some(text) = current.as_ref().and_then(|name| files.get_mut(name)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Some((main?, files))
}

/// The simple directives of a file outside of every block, each with its arguments.
fn main_context(text: &str) -> Vec<Vec<String>> {
    let mut directives = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut depth = 0_usize;
    for token in (Tokens { rest: text }) {
        match token {
            Token::Word(word) => words.push(word),
            Token::End if depth == 0 => directives.push(std::mem::take(&mut words)),
            Token::End => words.clear(),
            Token::Open => {
                depth += 1;
                words.clear();
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                words.clear();
            }
        }
    }
    directives
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// Words as nginx cuts them: quotes, backslashes, comments, and `${name}` inside of a word.
struct Tokens<'a> {
    rest: &'a str,
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.find('\n').map_or("", |end| &comment[end..]),
                None => break,
            }
        }
        let first = self.rest.chars().next()?;
        let single = match first {
            ';' => Some(Token::End),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            _ => None,
        };
        if let Some(token) = single {
            self.rest = &self.rest[1..];
            return Some(token);
        }
        let quote = matches!(first, '"' | '\'').then_some(first);
        let mut chars = self.rest.char_indices().skip(usize::from(quote.is_some())).peekable();
        let mut word = String::new();
        let mut before = '\0';
        while let Some(&(at, c)) = chars.peek() {
            let ends = match quote {
                Some(quote) => c == quote,
                None => c.is_whitespace() || c == ';' || (c == '{' && before != '$'),
            };
            if ends {
                self.rest = &self.rest[at + if quote.is_some() { c.len_utf8() } else { 0 }..];
                return Some(Token::Word(word));
            }
            chars.next();
            before = c;
            if c == '\\' {
                // Only what could end the word is unescaped: enough for the directives that are looked for.
                match chars.next() {
                    Some((_, escaped @ ('"' | '\'' | '\\' | ';' | ' ' | '{' | '}'))) => word.push(escaped),
                    Some((_, other)) => word.extend(['\\', other]),
                    None => word.push('\\'),
                }
            } else {
                word.push(c);
            }
        }
        self.rest = "";
        Some(Token::Word(word))
    }
}

#[cfg(test)]
mod tests;
