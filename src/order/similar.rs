//! Names that were perhaps meant.

/// The name that is most like one that is not there, as text to follow what is said of that; empty where none is alike.
pub(crate) fn did_you_mean<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let alike = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let best = names.into_iter().map(|other| (alike(other), other)).max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(alike, _)| *alike >= ALIKE).map_or_else(String::new, |(_, best)| format!("; did you mean {best}?"))
}

/// 1 is the same name.
const ALIKE: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn only_what_is_alike_is_proposed() {
        let columns = ["order_no", "status", "expires_at", "paid_at", "closed_at"];
        for (name, meant) in
            [("expire_at", "expires_at"), ("expiresAt", "expires_at"), ("Status", "status"), ("orderno", "order_no"), ("state", "status")]
        {
            assert_eq!(did_you_mean(name, columns), format!("; did you mean {meant}?"), "{name}");
        }
        for name in ["due", "x", "deadline"] {
            assert_eq!(did_you_mean(name, columns), "", "{name}");
        }
        assert_eq!(did_you_mean("id", []), "");
    }
}
