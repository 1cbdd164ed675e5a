//! Signatures as the Standard Webhooks specification has them:
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::config::WebhookSecret;

/// The header `webhook-signature`: one signature by each secret, over the header `webhook-id`, the header
/// `webhook-timestamp` and the body.
#[must_use]
pub fn signatures(secrets: &[WebhookSecret], id: &str, timestamp: u64, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    let signature = |secret: &WebhookSecret| {
        // Fails for no length of key.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.key()).unwrap_or_else(|error| unreachable!("{error}"));
        mac.update(signed.as_bytes());
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    };
    secrets.iter().map(signature).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn the_known_answer() {
        let secret: WebhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap_or_else(|error| panic!("{error}"));
        let signed = signatures(&[secret.clone(), secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
