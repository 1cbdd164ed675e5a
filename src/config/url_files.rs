//! URLs that stand in files of their own, as systemd, Docker and Kubernetes hand over secrets.

use std::path::{Path, PathBuf};

use figment::{
    Error, Figment, Metadata, Profile, Provider,
    providers::Serialized,
    value::{Dict, Map},
};

use super::{load::source_of, optional::NONE, ranges::Ranges, secret};

/// The settings that may stand in a file, which the same name with `_file` names. So may each of `[databases]`.
const URLS: [&str; 2] = ["redis.url", "database.url"];

/// What stands behind the name of a setting that may stand in a file.
pub(super) const FILE: &str = "_file";

/// What such a file says, as a source of settings.
struct UrlFile {
    setting: String,
    path: PathBuf,
    url: String,
}

impl Provider for UrlFile {
    fn metadata(&self) -> Metadata {
        Metadata::from("file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Serialized::default(&self.setting, &self.url).data()
    }
}

/// Adds what stands in the files that are named.
///
/// # Errors
/// Names the setting of the file, and says what is wrong with it; never what stands in the file.
pub(super) fn read(mut set: Figment) -> Result<Figment, (String, String)> {
    let databases: Dict = set.extract_inner("databases").unwrap_or_default();
    let databases = databases.keys().filter_map(|name| Some(format!("databases.{}", name.strip_suffix(FILE)?)));
    for setting in URLS.map(String::from).into_iter().chain(databases) {
        let of_file = format!("{setting}{FILE}");
        // What is no text, or a URL itself, is refused with all other settings.
        let Ok(path) = set.extract_inner::<String>(&of_file) else { continue };
        if path == NONE || secret::is_a(&path).is_some() {
            continue;
        }
        let is_one = URLS.contains(&setting.as_str());
        let paths = if is_one { Ok(vec![(None, path)]) } else { Ranges::parse(&path).and_then(|ranges| ranges.together()) };
        // A range in the name of a file makes a database of each, as one in a URL does.
        for (number, path) in paths.map_err(|what| (of_file.clone(), what))? {
            let url = content(Path::new(&path)).map_err(|what| (of_file.clone(), format!("can't be used: {path} {what}")))?;
            let setting = number.map_or_else(|| setting.clone(), |number| format!("{setting}_{number}"));
            if set.find_value(&setting).is_ok() {
                let other = source_of(&set, &setting);
                return Err((of_file, format!("and {setting} (set in {other}) are both set; one of them is enough")));
            }
            set = set.merge(UrlFile { setting, path: path.into(), url });
        }
    }
    Ok(set)
}

/// The text of a file without the line's end.
fn content(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    let text = text.trim();
    if text.is_empty() { Err("is empty".into()) } else { Ok(text.into()) }
}
