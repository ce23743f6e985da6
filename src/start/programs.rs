//! The files that a start needs: the primary, the library, nginx.

use std::path::{Path, PathBuf};

use ff_config::Nginx;

use crate::exit::Failure;

const PRIMARY: &str = "ff-primary";
const LIBRARY: &str = "libff_nginx.so";

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// `ff-primary`.
    pub primary: PathBuf,
    /// `libff_nginx.so`.
    pub library: PathBuf,
}

impl Programs {
    /// Beside ffctl's own program; the library also in `../lib`, or where `FF_LIBRARY` says.
    pub fn locate(nginx: &Nginx) -> Result<Self, Failure> {
        if !nginx.binary.is_file() {
            return Err(Failure::usage(format!(
                "there is no nginx at {}: apt install nginx, or say where it is with `binary` in [nginx]",
                nginx.binary.display()
            )));
        }
        let own = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("cannot tell where ffctl itself is: {error}")))?;
        let library = std::env::var_os("FF_LIBRARY").map(PathBuf::from);
        Self::beside(own.parent().unwrap_or(Path::new("/")), library)
    }

    fn beside(directory: &Path, library: Option<PathBuf>) -> Result<Self, Failure> {
        let primary = directory.join(PRIMARY);
        if !primary.is_file() {
            return Err(Failure::failed(format!(
                "there is no {PRIMARY} in {}: build or install it beside ffctl",
                directory.display()
            )));
        }
        let places = match library {
            Some(library) => vec![library],
            None => vec![directory.join(LIBRARY), directory.join("../lib").join(LIBRARY)],
        };
        // Absolute, because nginx changes its directory and `LD_PRELOAD` lives on in what it starts.
        let library = places.iter().find_map(|place| place.canonicalize().ok().filter(|file| file.is_file()));
        let looked = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>();
        match library {
            Some(library) => Ok(Self { primary, library }),
            None => Err(Failure::failed(format!(
                "there is no {LIBRARY} (looked for {}): build or install it, or name it with FF_LIBRARY",
                looked.join(" and ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn beside_ffctl_or_in_lib_or_as_named() {
        let root = std::env::temp_dir().join(format!("ffctl-programs-{}", std::process::id()));
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let missing = Programs::beside(&bin, None).unwrap_err();
        assert!(missing.sentence.contains(PRIMARY), "{missing}");
        fs::write(bin.join(PRIMARY), "").unwrap();
        let missing = Programs::beside(&bin, None).unwrap_err();
        assert!(missing.sentence.contains("FF_LIBRARY"), "{missing}");

        fs::write(lib.join(LIBRARY), "").unwrap();
        let found = |named| Programs::beside(&bin, named).map(|programs| programs.library);
        assert_eq!(found(None), Ok(lib.join(LIBRARY).canonicalize().unwrap()));
        fs::write(bin.join(LIBRARY), "").unwrap();
        assert_eq!(found(None), Ok(bin.join(LIBRARY).canonicalize().unwrap()));
        assert_eq!(found(Some(lib.join(LIBRARY))), Ok(lib.join(LIBRARY).canonicalize().unwrap()));
        // A name that leads nowhere is not replaced by another library.
        assert!(found(Some(root.join("absent.so"))).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
