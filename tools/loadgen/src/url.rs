//! `http://ADDRESS[:PORT]/PATH`: an address, since names would need a resolver.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A parsed URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Where to connect.
    pub remote: SocketAddr,
    /// What stood between `//` and the path: the `Host` header.
    pub authority: String,
    /// The path with its query; `/` if there was none.
    pub path: String,
}

/// Why it is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no URL of the form http://ADDRESS[:PORT]/PATH with an IP address (IPv6 in brackets)")]
pub struct UrlError(String);

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let wrong = || UrlError(text.to_owned());
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let remote = authority.parse::<SocketAddr>().or_else(|_| {
            let ip = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(authority);
            let is_bracketed = ip.len() != authority.len();
            match ip.parse::<IpAddr>() {
                Ok(ip) if ip.is_ipv6() == is_bracketed => Ok(SocketAddr::new(ip, 80)),
                _ => Err(wrong()),
            }
        })?;
        if remote.port() == 0 {
            return Err(wrong());
        }
        Ok(Self { remote, authority: authority.to_owned(), path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones() {
        for (text, remote, authority, path) in [
            ("http://198.18.0.2", "198.18.0.2:80", "198.18.0.2", "/"),
            ("http://198.18.0.2:8080/a?b=/", "198.18.0.2:8080", "198.18.0.2:8080", "/a?b=/"),
            ("http://[2001:2::2]/x", "[2001:2::2]:80", "[2001:2::2]", "/x"),
            ("http://[2001:2::2]:81/", "[2001:2::2]:81", "[2001:2::2]:81", "/"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(url.remote, remote.parse().unwrap());
            assert_eq!((url.authority.as_str(), url.path.as_str()), (authority, path));
        }
    }

    #[test]
    fn bad_ones() {
        for text in [
            "198.18.0.2/",
            "https://198.18.0.2/",
            "http://name/",
            "http://",
            "http://2001:2::2/",
            "http://[198.18.0.2]/",
            "http://198.18.0.2:0/",
            "http://198.18.0.2:99999/",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }
}
