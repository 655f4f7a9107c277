//! What a server is given and cannot use: it does not start, and says which file or setting, which line and why.

use crate::certificates;
use crate::support::{Folder, Server, fairlock, outcome};
use std::path::Path;

/// What a server is started with, its exit code, and what has to stand in the one sentence that it ends with.
struct Case {
    arguments: Vec<String>,
    code: i32,
    words: Vec<String>,
}

fn case<const A: usize, const W: usize>(code: i32, arguments: [&str; A], words: [&str; W]) -> Case {
    Case {
        arguments: arguments.map(str::to_owned).into(),
        code,
        words: words.map(str::to_owned).into(),
    }
}

#[test]
fn a_server_that_cannot_start_says_file_line_and_reason_and_leaves_nothing_behind() {
    let folder = Folder::new("bad-input");
    certificates::write_all(|name| Path::new(&folder.file(name)).to_owned());
    let file = |name: &str| folder.file(name);
    let [server, server_key, client_key] = ["server.pem", "server.key", "client.key"].map(file);
    let [expired, expired_key] = ["expired.pem", "expired.key"].map(file);
    let broken = folder.write(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nnonsense!\n-----END CERTIFICATE-----\n",
    );
    let config = |name: &str, text: &str| folder.write(name, text);
    let unknown = config("unknown.toml", "max_lease = 5\n\nmax_leese = 5\n");
    let wrong_type = config("type.toml", "max_lease = 5\nmax_keys = \"many\"\n");
    let no_toml = config("none.toml", "max_lease = 5\nmax_keys =\n");
    let out_of_range = config("range.toml", "# keys\nmax_keys = 0\n");
    let twice = config("twice.toml", "max_keys = 5\nmax_keys = 6\n");
    let not_text = file("not-text.toml");
    std::fs::write(&not_text, [0xFF, 0xFE]).expect("written");
    let missing = file("missing");
    let a_folder = folder.path().to_str().expect("text").to_owned();

    let good = "[[user]]\nname = \"a\"\nsecret = \"sesame\"\nkeys = [\"\"]\n";
    let b = good.replace("\"a\"", "\"b\"");
    let users = |name: &str, text: &str| folder.write(name, text);
    let users_toml = users("users-toml", "[[user]]\nname = \"a\nsecret = \"sesame\"\n");
    let users_unquoted = users(
        "users-unquoted",
        "[[user]]\nname = \"a\"\nsecret = sesame\n",
    );
    let users_key = users("users-key", &format!("{good}right = [\"lock\"]\n"));
    let users_right = users("users-right", &format!("{good}rights = [\"lok\"]\n"));
    let users_name = users("users-name", &format!("{good}\n{good}"));
    let users_secret = users("users-secret", &format!("{good}\n{b}"));
    let users_hash = users(
        "users-hash",
        "[[user]]\nname = \"a\"\nsecret_hash = \"sesame\"\n",
    );
    let users_empty = users("users-empty", "# nobody\n");
    let users_good = users("users-good", good);
    let secret_empty = folder.write("secret-empty", "\n");
    let secret_long = folder.write("secret-long", &"x".repeat(513));

    let running = Server::start();
    let cases = [
        case(
            1,
            ["--tls-cert", &broken, "--tls-key", &server_key],
            ["TLS file", &broken, "no PEM file"],
        ),
        case(
            1,
            ["--tls-cert", &server, "--tls-key", &client_key],
            [&client_key, "does not match", &server],
        ),
        case(
            1,
            ["--tls-cert", &expired, "--tls-key", &expired_key],
            [&expired, "it expired"],
        ),
        case(
            1,
            ["--tls-cert", &missing, "--tls-key", &server_key],
            [&missing, "No such file"],
        ),
        case(64, ["--tls-cert", &server], ["--tls-cert", "tls_key"]),
        case(
            64,
            ["--config", &unknown],
            [
                &unknown,
                "line 3",
                "no setting max_leese; perhaps max_lease",
            ],
        ),
        case(
            64,
            ["--config", &wrong_type],
            [&wrong_type, "line 2", "a whole number, without quotes"],
        ),
        case(64, ["--config", &no_toml], [&no_toml, "line 2"]),
        case(
            64,
            ["--config", &out_of_range],
            [&out_of_range, "line 2", "between 1 and"],
        ),
        case(64, ["--config", &twice], [&twice, "line 2", "duplicate"]),
        case(64, ["--config", &not_text], [&not_text, "UTF-8"]),
        case(64, ["--config", &missing], [&missing, "No such file"]),
        case(64, ["--config", &a_folder], [&a_folder, "directory"]),
        case(
            64,
            ["--max-leese", "5"],
            ["--max-leese", "perhaps --max-lease"],
        ),
        case(64, ["--max-keys", "many"], ["--max-keys", "whole number"]),
        case(
            64,
            [
                "--users-file",
                &users_good,
                "--peers",
                "127.0.0.1:1,127.0.0.1:2",
                "--node",
                "127.0.0.1:1",
            ],
            ["--users-file", "cluster_secret_file"],
        ),
        case(
            1,
            ["--users-file", &missing],
            ["users file", &missing, "No such file"],
        ),
        case(
            1,
            ["--users-file", &a_folder],
            ["users file", &a_folder, "directory"],
        ),
        case(
            1,
            ["--users-file", &not_text],
            ["users file", &not_text, "UTF-8"],
        ),
        case(1, ["--users-file", &users_toml], [&users_toml, "line 2"]),
        case(
            1,
            ["--users-file", &users_unquoted],
            [&users_unquoted, "line 3"],
        ),
        case(
            1,
            ["--users-file", &users_key],
            [&users_key, "line 5", "a user has no right;"],
        ),
        case(
            1,
            ["--users-file", &users_right],
            [&users_right, "line 5", "no right lok", "release_others"],
        ),
        case(
            1,
            ["--users-file", &users_name],
            [&users_name, "line 7", "a user a already"],
        ),
        case(
            1,
            ["--users-file", &users_secret],
            [&users_secret, "line 8", "user b", "secret of user a"],
        ),
        case(
            1,
            ["--users-file", &users_hash],
            [&users_hash, "line 3", "fairlock hash-secret"],
        ),
        case(
            1,
            ["--users-file", &users_empty],
            [&users_empty, "no [[user]]"],
        ),
        case(
            1,
            ["--secret-file", &secret_empty],
            ["secret file", &secret_empty, "between 1 and 512"],
        ),
        case(
            1,
            ["--secret-file", &secret_long],
            ["secret file", &secret_long, "between 1 and 512"],
        ),
        case(
            1,
            [
                "--cluster-secret-file",
                &missing,
                "--peers",
                "127.0.0.1:1,127.0.0.1:2",
                "--node",
                "127.0.0.1:1",
            ],
            ["secret file", &missing, "No such file"],
        ),
        case(
            1,
            ["--listen", &running.address],
            [&running.address, "in use"],
        ),
    ];
    for case in cases {
        let gives = |name: &str| case.arguments.iter().any(|argument| argument == name);
        let mut command = fairlock(["serve"]);
        let data = folder.file("data");
        if !gives("--listen") && !gives("--node") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(["--data-dir", &data]).args(&case.arguments);
        let outcome = outcome(command);
        assert_eq!(outcome.code, case.code, "{:?}: {outcome:?}", case.arguments);
        assert_eq!(outcome.out, "", "{outcome:?}");
        let last = outcome.err.lines().last().unwrap_or_default();
        for words in &case.words {
            assert!(
                last.contains(words),
                "{:?} lacks {words:?}: {outcome:?}",
                case.arguments
            );
        }
        assert!(!outcome.err.contains("sesame"), "{outcome:?}");
        assert!(!Path::new(&data).exists(), "{:?}", case.arguments);
    }
}
