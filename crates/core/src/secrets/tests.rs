use super::*;

#[test]
fn a_variables_value_is_kept_where_its_name_is_known_and_of_no_secret() {
    assert_eq!(variable("OMP_NUM_THREADS", "4").as_deref(), Some("4"));
    for name in [
        "NVIDIA_API_KEY",
        "TORCH_HUB_TOKEN",
        "JAX_Auth",
        "CUDA_DB_PASSWORD",
    ] {
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
    for (line, kept) in [
        (
            "serve --api-key=hunter2 --port=8000",
            "serve --api-key=*** --port=8000",
        ),
        ("serve --token hunter2 --quiet", "serve --token *** --quiet"),
        ("serve --use-auth --quiet", "serve --use-auth --quiet"),
        (
            "env API_KEY=hunter2 OMP_NUM_THREADS=4 serve",
            "env API_KEY=*** OMP_NUM_THREADS=4 serve",
        ),
        (
            "serve https://me:hunter2@host/a@b",
            "serve https://***@host/a@b",
        ),
        (
            "python3.11 -u bench/serve.py --mode fast --n=4 --causal",
            "python3.11 -u bench/serve.py --mode fast --n=4 --causal",
        ),
        (
            "worker:mine=./serve api_key=hunter2 n=4",
            "worker:mine=./serve api_key=*** n=4",
        ),
        (
            "regatta compare ./s.toml --base git:main --head pypi:jax==0.5.0,jaxlib==0.5.1",
            "regatta compare ./s.toml --base git:main --head pypi:jax==0.5.0,jaxlib==0.5.1",
        ),
        (
            "regatta run quick --filter torch/efficient:s4096,d32,bwd:num_splits_key=1",
            "regatta run quick --filter torch/efficient:s4096,d32,bwd:num_splits_key=1",
        ),
        (
            "nvcc -O3 -std=c++17 -arch sm_90a -I/usr/include -o out/k.so k.cu",
            "nvcc -O3 -std=c++17 -arch sm_90a -I/usr/include -o out/k.so k.cu",
        ),
        ("serve --hub hf_0123456789abcdef0123", "serve --hub ***"),
        ("git: worker: hunter2:", "git: worker: ***"),
        (
            "serve --passcode 123456 --totp=123456",
            "serve --passcode *** --totp=***",
        ),
        (
            "python setup.py -q build_ext --inplace",
            "python setup.py -q build_ext --inplace",
        ),
        (
            "regatta run --set torch/sdpa.num_splits_key=1",
            "regatta run --set torch/sdpa.num_splits_key=1",
        ),
        (
            "serve --num-splits-key 4 --tile-keys=128",
            "serve --num-splits-key 4 --tile-keys=128",
        ),
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(command_line(&words).join(" "), kept);
    }
    let spec = ["worker:mine=./serve --api-key=hunter2".to_owned()];
    assert_eq!(command_line(&spec), ["worker:mine=./serve --api-key=***"]);
    let header = ["-H".to_owned(), "Authorization: Bearer hunter2".to_owned()];
    assert_eq!(command_line(&header), ["-H", HIDDEN]);
}

/// Forms in which command lines hold secrets, with `SECRET` in the place of one.
const FORMS: &str = include_str!("forms.txt");

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
    for form in [
        "Server=h;Password=S3cret;Timeout=3",
        "AccountName=a;AccountKey=S3cret==;x=1",
        "GET /models?sig=S3cret&page=1",
        "see https://h/x#access_token=S3cret",
        "https://h/x;token=S3cret",
        "password = 'S3cret'",
        "api_key : S3cret",
        "password=\"two S3cret\"",
        "key AIzaS3cret0123456789",
        "SG.S3cret0123456789",
        "-----BEGIN EC PRIVATE KEY-----\nS3cret\nS3cret\n-----END EC PRIVATE KEY-----\nx",
        "a -----BEGIN PRIVATE KEY----- S3cret",
        "authorization=Basic S3cret==",
        "headers={'Authorization': 'Token S3cret'}",
        "token S3cret9 is not valid",
        "Invalid token `S3cret9`",
        "password \"S3cret9\" rejected",
        "-token S3cret",
        "/ApiKey:S3cret",
        "PASSWORD->S3cret",
        "token => 'S3cret'",
        "<password>S3cret</password>",
        "Command '['serve', '--token', 'S3cret', '-n']' returned 1",
        "os.environ[\"API_KEY\"] = \"S3cret\"",
        "connect(token='S3cret', n=3)",
        "machine github.com login u password S3cret9",
        "//registry.npmjs.org/:_authToken=S3cret",
        "_auth = S3cret",
        "https://h/ghp_S3cret0123456789abcdef/x",
        "hvs.S3cret0123456789",
        "dp.pt.S3cret0123456789",
        "xoxs-S3cret0123456789",
        "shpat_S3cret0123456789",
    ] {
        let shown = message(form);
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
