//! Users who are not let in. The server answers and goes on refusing: a setting has to change, or a role.

/// What ends a refusal with this SQLSTATE, which names its objects in quotes, if it is about the way in.
pub(super) fn cure(code: &str, message: &str) -> Option<String> {
    let mut named = message.split('"').skip(1).step_by(2);
    let mut next = || named.next().unwrap_or("...");
    Some(match code {
        "28P01" => {
            format!("correct the user and the password in database.url, or: ALTER ROLE \"{}\" LOGIN PASSWORD '...';", next())
        }
        "28000" if message.contains("pg_hba.conf") => {
            let (host, user, database) = (next(), next(), next());
            format!(
                "correct database.url, or let the server's pg_hba.conf take this login, by a line such as \
                 `host {database} {user} {host}/32 scram-sha-256`, and: SELECT pg_reload_conf();"
            )
        }
        "28000" => {
            let user = next();
            format!(
                "correct the user in database.url, or: CREATE ROLE \"{user}\" LOGIN PASSWORD '...'; if there is one: ALTER ROLE \"{user}\" LOGIN; \
                 and let pg_hba.conf ask it for a password"
            )
        }
        "3D000" => format!("correct the database's name in database.url, or: CREATE DATABASE \"{}\";", next()),
        // Other rights are missing to statements.
        "42501" if message.contains("for database") => {
            format!("correct the user in database.url, or: GRANT CONNECT ON DATABASE \"{}\" TO ...;", next())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::cure;

    #[test]
    fn what_is_to_be_done_names_what_the_server_names() {
        for (code, message, part) in [
            ("28P01", r#"password authentication failed for user "closer""#, r#"ALTER ROLE "closer" LOGIN PASSWORD"#),
            ("28P01", "l’authentification a échoué", r#"ALTER ROLE "..." LOGIN PASSWORD"#),
            (
                "28000",
                r#"no pg_hba.conf entry for host "10.0.0.5", user "closer", database "shop", no encryption"#,
                "`host shop closer 10.0.0.5/32 scram-sha-256`",
            ),
            ("28000", r#"role "closer" is not permitted to log in"#, r#"ALTER ROLE "closer" LOGIN"#),
            ("3D000", r#"database "shop" does not exist"#, r#"CREATE DATABASE "shop";"#),
            ("42501", r#"permission denied for database "shop""#, r#"GRANT CONNECT ON DATABASE "shop" TO"#),
        ] {
            assert!(cure(code, message).is_some_and(|cure| cure.contains(part)), "{message}: {:?}", cure(code, message));
        }
        assert_eq!(cure("42501", r#"permission denied for table orders"#), None);
        assert_eq!(cure("57P03", "the database system is starting up"), None);
    }
}
