//! Lists the examples of `config/examples`, so that `order-closer init` has them all in itself.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=config/examples");
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(Path::new(&root).join("config/examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let entry = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("({name:?}, include_str!({:?})),", path.display().to_string())
    };
    let list: String = files.iter().map(entry).collect();
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("examples.rs"), format!("&[{list}]"))
}
