//! How a remote store is opened: from the environment, then from the caller's options.
//!
//! Options have the names that `object_store` gives them (`aws_access_key_id`, `endpoint`, `region`,
//! `timeout`, ...), in any case, plus `max_retries`. One that nobody knows is refused: a misspelt
//! credential would otherwise look like a wrong one.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use crate::data::source::store::Options;
use crate::error::{Error, Kind, Result};

/// Unless the options say otherwise. A whole request may take long, because samples are large; but
/// bytes must keep coming.
const DEFAULTS: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::ConnectTimeout, "5 seconds"),
    (ClientConfigKey::ReadTimeout, "20 seconds"),
    (ClientConfigKey::Timeout, "300 seconds"),
];

/// How often a request is sent again after a server's error, a timeout or a lost connection.
const RETRIES: usize = 3;
/// And for how long.
const RETRY_TIME: Duration = Duration::from_mins(2);

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Amazon S3, and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Any web server.
    Http,
}

impl Scheme {
    pub fn of(root: &str) -> Result<Self> {
        match root.split_once("://").map_or(root, |(scheme, _)| scheme) {
            "s3" | "s3a" => Ok(Self::S3),
            "gs" => Ok(Self::Google),
            "http" | "https" => Ok(Self::Http),
            _ => Err(Error::new(Kind::Internal, "no remote store").with("store", root)),
        }
    }

    /// How to say who one is.
    pub fn credentials(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN) and AWS_REGION, or \
                 the same names in storage_options; profiles in ~/.aws are not read; \
                 aws_skip_signature=true is for public buckets"
            }
            Self::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS or google_service_account in storage_options; \
                 google_skip_signature=true is for public buckets"
            }
            Self::Http => "check that the address may be read without logging in",
        }
    }
}

/// Opens the store at `root`.
pub(super) fn open(scheme: Scheme, root: &str, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    // A process has one TLS; if another part of it has chosen already, that choice is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = retries(options)?;
    match scheme {
        Scheme::S3 => open_s3(root, options, retry),
        Scheme::Google => open_google(root, options, retry),
        Scheme::Http => open_http(root, options, retry),
    }
}

fn open_s3(root: &str, options: &Options, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = DEFAULTS.iter().fold(AmazonS3Builder::from_env(), |builder, (key, value)| {
        builder.with_config(AmazonS3ConfigKey::Client(*key), *value)
    });
    for (key, value) in client_options(options) {
        let key = key.to_ascii_lowercase().parse().map_err(|_| unknown(key))?;
        builder = builder.with_config(key, value);
    }
    // Whoever writes http:// has decided for it; asking a second time helps nobody.
    let keys = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
    let endpoints = keys.iter().filter_map(|key| builder.get_config_value(key));
    let plain = endpoints.into_iter().any(|endpoint| endpoint.starts_with("http://"));
    if plain {
        builder = builder.with_allow_http(true);
    }
    let store = builder.with_url(root).with_retry(retry).build().map_err(refused)?;
    Ok(Arc::new(store))
}

fn open_google(root: &str, options: &Options, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let start = GoogleCloudStorageBuilder::from_env();
    let mut builder = DEFAULTS.iter().fold(start, |builder, (key, value)| {
        builder.with_config(GoogleConfigKey::Client(*key), *value)
    });
    for (key, value) in client_options(options) {
        let key = key.to_ascii_lowercase().parse().map_err(|_| unknown(key))?;
        builder = builder.with_config(key, value);
    }
    let store = builder.with_url(root).with_retry(retry).build().map_err(refused)?;
    Ok(Arc::new(store))
}

fn open_http(root: &str, options: &Options, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = DEFAULTS
        .iter()
        .fold(HttpBuilder::new(), |builder, (key, value)| builder.with_config(*key, *value));
    if root.starts_with("http://") {
        builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
    }
    for (key, value) in client_options(options) {
        let key = key.to_ascii_lowercase().parse().map_err(|_| unknown(key))?;
        builder = builder.with_config(key, value);
    }
    let store = builder.with_url(root).with_retry(retry).build().map_err(refused)?;
    Ok(Arc::new(store))
}

/// The options that are for the store's client.
fn client_options(options: &Options) -> impl Iterator<Item = (&String, &String)> {
    options.iter().filter(|(key, _)| *key != "max_retries")
}

fn retries(options: &Options) -> Result<RetryConfig> {
    let max_retries = match options.get("max_retries") {
        None => RETRIES,
        Some(text) => text.parse().map_err(|_| {
            Error::invalid(format!("the storage option max_retries is {text:?}; give a number"))
        })?,
    };
    Ok(RetryConfig { max_retries, retry_timeout: RETRY_TIME, ..RetryConfig::default() })
}

#[cold]
fn unknown(key: &str) -> Error {
    let told = format!("no store of this kind knows the storage option {key:?}");
    Error::invalid(format!("{told}; its name is that of the environment's variable, or a client's"))
}

#[cold]
fn refused(error: object_store::Error) -> Error {
    Error::invalid("the store can't be opened with these settings").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(root: &str, key: &str, value: &str) -> String {
        let options = Options::from([(key.to_owned(), value.to_owned())]);
        open(Scheme::of(root).unwrap(), root, &options).err().unwrap().to_string()
    }

    #[test]
    fn a_misspelt_option_is_refused_by_its_name() {
        for root in ["s3://bucket", "gs://bucket", "http://host"] {
            let told = said(root, "aws_acess_key", "x");
            assert!(told.contains("knows the storage option \"aws_acess_key\""), "{root}: {told}");
        }
        assert_eq!(
            said("s3://bucket", "max_retries", "many"),
            "the storage option max_retries is \"many\"; give a number"
        );
        let told = said("s3://bucket", "timeout", "soon");
        assert!(told.starts_with("the store can't be opened with these settings: "), "{told}");
    }
}
