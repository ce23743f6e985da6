//! Writes docs/handover-machine.md from the table in the code.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let document = format!(
        "# The handover machine\n\n\
         Written by `cargo run -p ff-handover --example machine` from the table in\n\
         `handover/src/machine.rs`; a test fails when the two differ. The words that the\n\
         states stand for are explained there, and what the coordinator does in each of\n\
         them in `handover/src/coordinator/view.rs`.\n\n\
         One machine runs for each attempt. `→` next state, `·` may happen and changes\n\
         nothing, `✗` cannot happen.\n\n{}\n```mermaid\n{}```\n",
        ff_handover::machine::matrix(),
        ff_handover::machine::graph()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/handover-machine.md");
    std::fs::write(path, document)
}
