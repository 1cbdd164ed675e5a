//! Users who are not let in, and logins that the driver lacks. The server answers and goes on refusing: a setting has to
//! change, or an account.

use crate::store::Misfit;

/// What the driver can do with a password: <https://docs.rs/sqlx-mysql/0.9>, `AuthPlugin`.
const KNOWN: &str = "mysql_native_password, caching_sha2_password or sha256_password, which the driver knows (ALTER USER)";

/// What is wrong with how a user logs in, if that is why no connection could be had.
pub(super) fn misfit(error: &sqlx::Error, number: u16) -> Option<Misfit> {
    /// Access denied, and a password was not even looked at.
    const NO_PASSWORD: u16 = 1698;
    if number == NO_PASSWORD {
        return Some(Misfit(format!(
            "database.url: this user logs in by unix_socket (auth_socket in MySQL), and not by a password; \
             connect through the server's socket as the system user of that name (append ?socket=/run/mysqld/mysqld.sock), \
             or let it log in by {KNOWN}"
        )));
    }
    let sqlx::Error::Protocol(text) = error else { return None };
    let plugin = if text.contains("mysql_cleartext_plugin disabled") {
        "mysql_clear_password"
    } else {
        let (_, named) = text.split_once("unknown authentication plugin: ")?;
        sql_name(named.split_whitespace().next()?)
    };
    Some(Misfit(format!("database.url: this user logs in by {plugin}, which the driver does not know; let it log in by {KNOWN}")))
}

/// What ends a refusal with this number, which names its objects in quotes, if it is about the way in.
pub(super) fn cure(number: u16, message: &str) -> Option<String> {
    let mut named = message.split('\'').skip(1).step_by(2);
    let mut next = || named.next().unwrap_or("...");
    let mut account = || format!("'{}'@'{}'", next(), next());
    Some(match number {
        1045 => format!(
            "correct the user and the password in database.url, or: ALTER USER {account} IDENTIFIED BY '...'; if there is none from this \
             host: CREATE USER",
            account = account()
        ),
        // An account that was locked, in MySQL and in MariaDB.
        3118 | 4151 => format!("ALTER USER {} ACCOUNT UNLOCK;", account()),
        // A password that expired.
        1820 | 1862 => "ALTER USER ... IDENTIFIED BY '...', and correct the password in database.url".into(),
        1044 => {
            let account = account();
            format!("correct the database's name in database.url, or: GRANT SELECT, UPDATE ON `{}`.* TO {account};", next())
        }
        1049 => format!("correct the database's name in database.url, or: CREATE DATABASE `{}`;", next()),
        // ProxySQL's own: a session whose settings it can't follow stays with its servers, and a rule leads a statement elsewhere.
        9005 | 9006 => "let ProxySQL send each statement of this user to the writers, or name the server itself in database.url: \
                 UPDATE mysql_users SET fast_forward = 1, default_hostgroup = ... WHERE username = '...'"
            .into(),
        1130 => format!("let the user log in from this host: CREATE USER '...'@'{}' IDENTIFIED BY '...';", next()),
        _ => return None,
    })
}

/// A plugin as CREATE USER has it, whose client's half may have another name.
fn sql_name(client: &str) -> &str {
    match client {
        "client_ed25519" => "ed25519",
        "dialog" => "dialog (pam)",
        "auth_gssapi_client" => "gssapi",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_names_what_the_server_names() {
        for (number, message, part) in [
            (1045, "Access denied for user 'closer'@'localhost' (using password: YES)", "ALTER USER 'closer'@'localhost' IDENTIFIED BY"),
            (1044, "Access denied for user 'closer'@'%' to database 'shop'", "GRANT SELECT, UPDATE ON `shop`.* TO 'closer'@'%';"),
            (1049, "Unknown database 'shop'", "CREATE DATABASE `shop`;"),
            (1130, "Host '10.0.0.5' is not allowed to connect to this MariaDB server", "'...'@'10.0.0.5'"),
            (9005, "Session trying to reach HG 1 while locked on HG 0 . Rejecting query: SELECT 1", "default_hostgroup ="),
            (9006, "ProxySQL Error: connection is locked to hostgroup 0 but trying to reach hostgroup 1", "fast_forward = 1"),
            (4151, "Access denied, this account is locked", "ACCOUNT UNLOCK"),
        ] {
            assert!(cure(number, message).is_some_and(|cure| cure.contains(part)), "{message}: {:?}", cure(number, message));
        }
        assert_eq!(cure(1142, "SELECT command denied to user 'closer'@'localhost' for table 'orders'"), None);
    }

    #[test]
    fn the_plugin_is_named_and_no_other_trouble_is_taken_for_one() {
        let said = |text: &str| misfit(&sqlx::Error::Protocol(text.into()), 0).map(|misfit| misfit.to_string());
        for (text, plugin) in [
            ("unknown authentication plugin: client_ed25519 (sqlx_mysql::protocol::auth:36)", "by ed25519,"),
            ("unknown authentication plugin: auth_gssapi_client", "by gssapi,"),
            ("unknown authentication plugin: parsec", "by parsec,"),
            ("unknown authentication plugin: dialog", "by dialog (pam),"),
            ("mysql_cleartext_plugin disabled", "by mysql_clear_password,"),
        ] {
            assert!(said(text).is_some_and(|said| said.contains(plugin) && said.contains("caching_sha2_password")), "{text}");
        }
        assert_eq!(said("expected 21 bytes but found 9 bytes"), None);
        assert_eq!(misfit(&sqlx::Error::PoolTimedOut, 1045), None);
        assert!(misfit(&sqlx::Error::PoolTimedOut, 1698).is_some_and(|misfit| misfit.to_string().contains("unix_socket")));
    }
}
