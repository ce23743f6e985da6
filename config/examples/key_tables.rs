//! Prints the key tables, or with a file's name renews the part of `docs/configuration.md` that comes from them:
//! `cargo run -p ff-config --example key_tables -- docs/configuration.md`.

use std::error::Error;

const BEGIN: &str = "<!-- key tables: written by the example key_tables of ff-config -->\n";
const END: &str = "<!-- end of key tables -->\n";

fn main() -> Result<(), Box<dyn Error>> {
    let Some(file) = std::env::args().nth(1) else {
        print!("{}", ff_config::key_tables());
        return Ok(());
    };
    let text = std::fs::read_to_string(&file)?;
    let (before, rest) = text.split_once(BEGIN).ok_or("the file has no mark where the tables begin")?;
    let (_, after) = rest.split_once(END).ok_or("the file has no mark where the tables end")?;
    std::fs::write(&file, format!("{before}{BEGIN}\n{}\n{END}{after}", ff_config::key_tables()))?;
    Ok(())
}
