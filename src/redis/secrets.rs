//! Takes our passwords out of whatever a server says.

use super::link::inline;
use crate::config::{Redis, RedisAddress, Secret};

/// What stands where a password was.
const HIDDEN: &str = "***";

/// Every form in which a server can give our passwords back.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(redis: &Redis) -> Self {
        let of_sentinels = match &redis.url.address {
            RedisAddress::Sentinels(sentinels) => sentinels.password.as_ref(),
            RedisAddress::Tcp { .. } | RedisAddress::Unix(_) | RedisAddress::Cluster { .. } | RedisAddress::Nowhere => None,
        };
        let mut forms = Vec::new();
        for password in redis.url.password.iter().chain(of_sentinels).map(Secret::reveal).filter(|password| !password.is_empty()) {
            forms.extend([
                // As the client writes it, with and without the quotes around it.
                inline(password),
                inline(password).trim_matches('"').to_owned(),
                escaped(password),
                // A line of the protocol has no line ends.
                password.replace(['\r', '\n'], " "),
                password.to_owned(),
            ]);
        }
        // The longest first: one may be a part of another.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self(forms)
    }

    /// The text without the passwords.
    pub(super) fn hide(&self, text: &str) -> String {
        // A server that doesn't know a command repeats its arguments, and cuts them off at a length of its own: in the middle
        // of a password, if need be.
        let text = text.split_once(", with args beginning with").map_or(text, |(before, _)| before);
        self.0.iter().fold(text.to_owned(), |text, form| replace(&text, form))
    }
}

/// The way in which Redis quotes arguments in its own texts.
fn escaped(word: &str) -> String {
    word.bytes()
        .map(|byte| match byte {
            b'\\' | b'"' => format!("\\{}", char::from(byte)),
            b'\n' => "\\n".into(),
            b'\r' => "\\r".into(),
            b'\t' => "\\t".into(),
            byte if byte.is_ascii_graphic() || byte == b' ' => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        })
        .collect()
}

/// Hexadecimal digits may come back in the other case.
fn replace(text: &str, form: &str) -> String {
    let (lower, wanted) = (text.to_ascii_lowercase(), form.to_ascii_lowercase());
    let mut kept = String::new();
    let mut rest = 0;
    for (at, _) in lower.match_indices(&wanted) {
        kept += &text[rest..at];
        kept += HIDDEN;
        rest = at + form.len();
    }
    kept + &text[rest..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(password: &str) -> Secrets {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let url = format!("redis://:{encoded}@127.0.0.1").try_into().expect("a good URL");
        Secrets::of(&Redis { url, ..Redis::default() })
    }

    #[test]
    fn a_password_is_hidden_in_whatever_form_it_comes_back() {
        let password = "S3 'cr\"e\\t\nü";
        let secrets = secrets(password);
        let hex: String = password.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        for form in [password.to_owned(), hex.to_uppercase().replace("\\X", "\\x"), hex, password.replace('\n', " "), escaped(password)] {
            assert_eq!(secrets.hide(&format!("ERR no {form}, and {form} again")), "ERR no ***, and *** again");
        }
    }

    #[test]
    fn arguments_that_are_cut_off_in_a_password_are_left_out() {
        let text = "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'a-long-pa";
        assert_eq!(secrets("a-long-password").hide(text), "ERR unknown command 'HELLO'");
    }

    #[test]
    fn what_has_no_password_stays_as_it_is() {
        assert_eq!(secrets("x").hide("ERR wrong type"), "ERR wrong type");
        assert_eq!(
            Secrets::default().hide("LOADING Redis is loading the dataset in memory"),
            "LOADING Redis is loading the dataset in memory"
        );
    }
}
