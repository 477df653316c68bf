use super::*;

#[test]
fn a_variables_value_is_kept_where_its_name_is_known_and_of_no_secret() {
    assert_eq!(variable("OMP_NUM_THREADS", "4").as_deref(), Some("4"));
    for name in "NVIDIA_API_KEY TORCH_HUB_TOKEN JAX_Auth CUDA_DB_PASSWORD".split(' ') {
        assert_eq!(variable(name, "1234"), None, "{name}");
    }
    let hidden = |value| variable("NCCL_PLUGIN_OPTIONS", value).unwrap();
    assert_ne!(hidden("hunter2"), hidden("hunter3"));
    assert!(hidden("hunter2").starts_with("hidden:") && hidden("hunter2").len() == 11);
    let flags = variable("XLA_FLAGS", "--a=1,ghp_0123456789abcdef0123");
    assert_eq!(flags.as_deref(), Some("--a=1,***"));
}

#[test]
fn a_command_line_is_kept_without_its_secrets() {
    for line in COMMANDS.lines() {
        let (line, kept) = line.split_once(" => ").unwrap_or((line, line));
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(command_line(&words).join(" "), kept);
    }
    let spec = ["worker:mine=./serve --api-key=hunter2".to_owned()];
    assert_eq!(command_line(&spec), ["worker:mine=./serve --api-key=***"]);
    let header = ["-H".to_owned(), "Authorization: Bearer hunter2".to_owned()];
    assert_eq!(command_line(&header), ["-H", HIDDEN]);
}

/// Command lines, each with what is kept of it where that is not all.
const COMMANDS: &str = include_str!("commands.txt");

/// Forms in which command lines hold secrets, with `SECRET` in the place of one.
const FORMS: &str = include_str!("forms.txt");

/// Forms in which messages hold a secret, `SECRET`.
const MESSAGES: &str = include_str!("messages.txt");

#[test]
fn no_form_of_a_secret_is_kept() {
    for secret in ["s3cr3tW0rd", "hunter2hunter", "Xy9/Zk+3=="] {
        for form in FORMS.lines().filter(|form| !form.is_empty()) {
            let words: Vec<String> = form
                .split('|')
                .map(|word| word.replace("SECRET", secret))
                .collect();
            let spec = [format!("worker:mine={}", words.join(" "))];
            for kept in [
                command_line(&words),
                identified(&words),
                command_line(&spec),
            ] {
                let kept = kept.join(" ");
                assert!(!kept.contains(secret), "{form}: {kept}");
            }
        }
    }
}

#[test]
fn what_a_worker_says_of_a_device_or_version_is_kept() {
    for text in [
        "NVIDIA H100 80GB HBM3",
        "Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz",
        "2.11.0+cu130",
        "AMD EPYC 9654 96-Core Processor",
        "0.5.0.dev20250101 (git 0123abcd)",
    ] {
        assert_eq!(description(text), text);
    }
    for form in [
        "a=S3cret",
        "X-Api-Key: S3cret",
        "x:{\"k\":\"S3cret\"}",
        "h/?t=S3cret",
    ] {
        assert!(!description(form).contains("S3cret"), "{form}");
    }
    let hidden = "cpu token=*** https://***@host/x?***";
    let given = "cpu token=hunter2 https://u:hunter2@host/x?k=hunter2";
    assert_eq!(description(given), hidden);
    let reason = "expected shape=(2, 3), got api_key=hunter2: see https://a@b/c?d";
    let shown = "expected shape=(2, 3), got api_key=*** see https://***@b/c?***";
    assert_eq!(message(reason), shown);
    let printed =
        "started with --db-password hunter --num-splits-key 4, --quiet: --token, --causal";
    assert_eq!(message(printed), printed.replace("hunter", HIDDEN));
    let key = "-----BEGIN EC PRIVATE KEY-----\nSECRET\nSECRET\n-----END EC PRIVATE KEY-----\nx";
    for form in MESSAGES.lines().chain([key]) {
        let shown = message(&form.replace("SECRET", "S3cret"));
        assert!(!shown.contains("S3cret"), "{form}: {shown}");
    }
    let quoted = "password='two S3cret' c\ntoken = \"S3cret\nValueError: d";
    assert_eq!(
        message(quoted),
        "password=*** *** c\ntoken = ***\nValueError: d"
    );
    for form in [
        "a; b=1 & c",
        "x? y#3",
        "f(key = 3): a missing key: b",
        "tokens=7;keys=3",
        "num_splits_key = 3: no",
        "key = 'a b'\nValueError: c",
        "the names of a session with tokens: 7",
        "the token of a file, --token, or the key",
        "a.cu(9): error: type Session has no member run",
    ] {
        assert_eq!(message(form), form);
    }
    let place = "worker a: multi_token_softmax.py:9: KeyError: no case";
    assert_eq!(message(place), place);
}

#[test]
fn commands_that_differ_in_what_is_hidden_differ() {
    let words = |mode: &str| identified(&["serve".to_owned(), format!("zone={mode}")]);
    assert_ne!(words("a-b"), words("a-c"));
    assert_eq!(words("a-b").len(), 2);
    let key = |key: &str| identified(&["serve".to_owned(), format!("api_key={key}")]);
    assert_eq!(key("a"), key("b"));
}

#[test]
fn a_message_keeps_the_drawn_names_of_folders_that_a_command_named() {
    let program = "/tmp/.tmpA1b2C3d4/bin/regatta".to_owned();
    let words = [
        program.clone(),
        "run".to_owned(),
        "../x9Y8z7W6/suite.toml".to_owned(),
    ];
    let text = format!("install it with `{program}`");
    assert_eq!(masked(text.clone(), &hidden_values(&words, [])), text);
}
