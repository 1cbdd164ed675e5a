//! The configuration as text, and how it comes onto the disk: whole or not at all, and never over a file that was not to be
//! replaced.

use std::{
    fs::Permissions,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    cli::{
        Exit, Failure,
        init::{mapping::Mapping, shops::Shop},
    },
    config::without_password,
};

/// The servers' URLs, with their passwords.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// The database's.
    pub(super) database: Server,
    /// Redis'.
    pub(super) redis: Server,
}

/// A URL and where it came from.
#[derive(Clone)]
pub(super) struct Server {
    /// The variable that overrides what the file says.
    pub(super) variable: &'static str,
    /// With its password.
    pub(super) url: String,
    /// Whether it came by that variable.
    pub(super) from_variable: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &without_password(&self.url).0).finish_non_exhaustive()
    }
}

impl Server {
    /// The line of the file: without the password, with a word on where that is.
    fn line(&self) -> String {
        let (url, had_password) = without_password(&self.url);
        let url = toml::Value::from(url);
        if had_password { format!("url = {url}    # the password: in the variable {}", self.variable) } else { format!("url = {url}") }
    }

    /// The variable as a shell and systemd read it, where the file lacks a password that no variable has.
    fn secret(&self) -> Option<String> {
        let is_needed = without_password(&self.url).1 && !self.from_variable;
        is_needed.then(|| format!("{}='{}'", self.variable, self.url.replace('\'', "%27")))
    }
}

impl Servers {
    /// What the file with the passwords is to hold, where there is one to be written: what stood there `before`, and these variables.
    ///
    /// # Errors
    /// The variable that has another value there, unless that is to be replaced.
    pub(super) fn secrets(&self, before: &str, replace: bool) -> Result<Option<String>, &'static str> {
        let secrets: Vec<(&'static str, String)> =
            [&self.database, &self.redis].into_iter().filter_map(|server| Some((server.variable, server.secret()?))).collect();
        let variable_of = |line: &str| {
            let said = line.trim_start().trim_start_matches("export ").trim_start();
            let has = |(variable, _): &&(&'static str, String)| said.strip_prefix(variable).is_some_and(|rest| rest.starts_with('='));
            secrets.iter().find(has).map(|(variable, _)| *variable)
        };
        let is_new = |line: &&str| !secrets.iter().any(|(_, secret)| secret == line.trim());
        if let Some(variable) = before.lines().filter(is_new).find_map(variable_of).filter(|_| !replace) {
            return Err(variable);
        }
        let kept = before.lines().filter(|line| variable_of(line).is_none());
        let lines = kept.chain(secrets.iter().map(|(_, secret)| secret.as_str()));
        Ok((!secrets.is_empty()).then(|| lines.map(|line| format!("{line}\n")).collect()))
    }
}

/// Of a shop that is known: its example, told where the servers are.
pub(super) fn of_shop(shop: &Shop, servers: &Servers) -> String {
    let mut section = "";
    let mut lines = Vec::new();
    for line in shop.text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let own = line.starts_with("url = ");
        match section {
            "[redis]" if own => lines.push(servers.redis.line()),
            "[database]" if own => lines.push(servers.database.line()),
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// Of a table of one's own.
pub(super) fn of_table(mapping: &Mapping, servers: &Servers) -> String {
    let Mapping { table, id, status, unpaid, closed, deadline, .. } = mapping;
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let plus = mapping.plus.map_or_else(String::new, |plus| format!(", plus = \"{plus}\""));
    let unit = mapping.unit.map_or_else(String::new, |unit| format!(", unit = \"{unit}\""));
    let when = mapping.plus.map_or_else(String::new, |plus| format!(" + {plus}"));
    let known: Vec<String> = mapping
        .values
        .iter()
        .map(|value| if value.label.is_empty() { value.value.clone() } else { format!("{} {}", value.value, value.label) })
        .collect();
    let known = if known.is_empty() { String::new() } else { format!("    # seen or allowed: {}", one_line(&known.join(", "))) };
    let zone = mapping
        .time_zone
        .as_ref()
        .map_or_else(String::new, |zone| format!("time_zone = {}    # in which {} was written\n", quoted(zone), deadline.name));
    let filter = match &mapping.filter {
        Some(filter) => format!("filter = {}\n", quoted(filter)),
        None => "# filter = \"pay_type <> 9\"    # one more condition: what must not be closed though it is unpaid\n".into(),
    };
    format!(
        "# order-closer for the table {name}, as `order-closer init` found it.\n\
         #\n\
         # An order whose {status} is {unpaid_text} at its deadline gets {closed}. Every setting with its default: docs/settings.md.\n\
         #\n\
         # Keys: SET {prefix}<{name}.{id}> \"\" PXAT <{deadline}{when}, in milliseconds>, after the order is committed.\n\
         \n\
         [redis]\n\
         {redis}\n\
         key_prefix = {key_prefix}\n\
         \n\
         [database]\n\
         {database}\n\
         {zone}\
         \n\
         [orders]\n\
         table = {table_text}\n\
         id = {id_text}\n\
         status = {status_text}{known}\n\
         unpaid = [{unpaid_text}]\n\
         closed = {closed}\n\
         deadline = {{ column = {deadline_text}{plus}{unit} }}\n\
         {filter}\
         # set = {{ closed_at = \"now()\" }}    # further columns that closing sets\n\
         \n\
         [close]\n\
         # What else closing does, in the same transaction: give back stock and coupons. docs/closing-sql.md has statements to copy.\n\
         sql = []\n",
        name = one_line(&table.name.to_string()),
        status = one_line(&status.name),
        id = one_line(&id.name),
        deadline = one_line(&deadline.name),
        prefix = one_line(&mapping.key_prefix),
        unpaid_text = unpaid.join(", "),
        redis = servers.redis.line(),
        key_prefix = quoted(&mapping.key_prefix),
        database = servers.database.line(),
        table_text = quoted(&table.name.to_string()),
        id_text = quoted(&id.name),
        status_text = quoted(&status.name),
        deadline_text = quoted(&deadline.name),
    )
}

/// What others have written, on one line of a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Where the passwords go.
fn secrets_beside(file: &Path) -> PathBuf {
    file.with_file_name("secrets.env")
}

/// Refuses to replace a file.
pub(super) fn refuse_to_replace(file: &Path) -> Failure {
    Failure::new(Exit::Usage, format!("{} is there already; --force replaces it, --config FILE names another", file.display()))
}

/// The file with the passwords and what it is to hold, if one is to be written.
pub(super) fn secrets(file: &Path, servers: &Servers, replace: bool) -> Result<Option<(PathBuf, String)>, Failure> {
    let beside = secrets_beside(file);
    let before = match std::fs::read_to_string(&beside) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::new(Exit::Configuration, format!("{} can't be read: {error}", beside.display()))),
    };
    let secrets = servers.secrets(&before, replace).map_err(|variable| {
        let name = beside.display();
        let message = format!(
            "{name} has another {variable} already; --force replaces it, --config FILE in another folder leaves it, and so does a URL \
             that comes by the variable"
        );
        Failure::new(Exit::Usage, message)
    })?;
    Ok(secrets.map(|text| (beside, text)))
}

/// Writes a file: all of it, or nothing.
pub(super) fn write(file: &Path, text: &str, mode: u32, replace: bool) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| Failure::new(Exit::Configuration, format!("{} can't be written: {error}", file.display()));
    // Where a link leads to, so that the link stays one; and no pipe or device, such as /dev/stdout, which a file would replace.
    let followed = if replace { file.canonicalize().ok() } else { None };
    let file = followed.as_deref().unwrap_or(file);
    if replace && file.metadata().is_ok_and(|there| !there.is_file()) {
        return Err(failed(&std::io::Error::other("it is not a file")));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder).map_err(|error| failed(&error))?;
    new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(|error| failed(&error))?;
    if replace {
        new.persist(file).map_err(|error| failed(&error.error))?;
        return Ok(());
    }
    match new.persist_noclobber(file) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(refuse_to_replace(file)),
        Err(error) => Err(failed(&error.error)),
    }
}
