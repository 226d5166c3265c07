//! Throw-away certificates for a server on 127.0.0.1, made with the `openssl` command.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of PEM files. A client needs only `ca`.
#[derive(Clone, Debug)]
pub struct Certificates {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Makes a certificate authority, and a certificate for 127.0.0.1 and localhost, in `dir`. Both are valid for two days.
pub fn certificates(dir: &Path) -> Certificates {
    // It uses its own configuration, so that no machine's openssl.cnf adds extensions. rustls requires version 3
    // certificates, names in subjectAltName, and a server certificate that is not an authority itself.
    let config = dir.join("openssl.cnf");
    let text = "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\nCN = quorate test\n\
                [ca]\nbasicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign, cRLSign\n\
                subjectKeyIdentifier = hash\n\
                [client]\nbasicConstraints = critical, CA:FALSE\nextendedKeyUsage = clientAuth\n\
                [other]\nbasicConstraints = critical, CA:FALSE\nextendedKeyUsage = serverAuth\n\
                [server]\nbasicConstraints = critical, CA:FALSE\nextendedKeyUsage = serverAuth, clientAuth\n\
                subjectAltName = IP:127.0.0.1, DNS:localhost\n\
                [self_signed]\nbasicConstraints = critical, CA:TRUE\nsubjectAltName = IP:127.0.0.1\n\
                [leaf]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = IP:127.0.0.1\n\
                [elsewhere]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = DNS:redis.internal\n";
    std::fs::write(&config, text).expect("a directory that can be written to");

    let request = "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let config = "-config openssl.cnf";
    let sign = "x509 -req -days 2 -extfile openssl.cnf";
    openssl(
        dir,
        &format!("{request} {config} -x509 -days 2 -extensions ca -keyout ca.key -out ca.crt"),
    );
    openssl(
        dir,
        &format!("{request} {config} -keyout server.key -out server.csr"),
    );
    openssl(
        dir,
        &format!(
            "{sign} -in server.csr -extensions server -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt"
        ),
    );
    Certificates {
        ca: dir.join("ca.crt"),
        cert: dir.join("server.crt"),
        key: dir.join("server.key"),
    }
}

/// A client's certificate, and its key.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A certificate for a client that the authority in `dir` signs: `[client]`, or `[other]` for one that is not made for
/// clients. With `days` of -1 it has expired.
pub fn client_certificate(dir: &Path, name: &str, extensions: &str, days: i64) -> ClientFiles {
    let request =
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
    openssl(
        dir,
        &format!("{request} -keyout {name}.key -out {name}.csr"),
    );
    openssl(
        dir,
        &format!(
            "x509 -req -days {days} -extfile openssl.cnf -in {name}.csr -extensions {extensions} -CA ca.crt \
             -CAkey ca.key -CAcreateserial -out {name}.crt"
        ),
    );
    ClientFiles {
        cert: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

/// Makes a key on this curve, and a certificate `name` with these extensions that the authority in `dir` signs. Without
/// extensions it is of version 1.
pub fn signed(dir: &Path, name: &str, curve: &str, extensions: &str, days: i64) -> Certificates {
    let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:{curve} -nodes -keyout {name}.key");
    openssl(
        dir,
        &format!("req -new -config openssl.cnf {key} -out {name}.csr"),
    );
    let extensions = match extensions {
        "" => String::new(),
        section => format!("-extfile openssl.cnf -extensions {section}"),
    };
    openssl(
        dir,
        &format!(
            "x509 -req -days {days} -in {name}.csr {extensions} -CA ca.crt -CAkey ca.key -CAcreateserial \
             -out {name}.crt"
        ),
    );
    Certificates {
        ca: dir.join("ca.crt"),
        cert: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

/// A certificate with these extensions that signs itself, as many guides make one.
pub fn self_signed(dir: &Path, name: &str, extensions: &str) -> Certificates {
    let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key");
    openssl(
        dir,
        &format!(
            "req -x509 -days 2 -config openssl.cnf -extensions {extensions} {key} -out {name}.crt"
        ),
    );
    Certificates {
        ca: dir.join(format!("{name}.crt")),
        cert: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

fn openssl(dir: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(dir)
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run openssl ({error}): run tests/install-servers.sh (make test does)")
        });
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
