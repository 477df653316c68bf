"""Holds the manifests of `regatta submit --kubernetes` to the schemas of Kubernetes.

    python tests/formats/manifests.py REGATTA

Every manifest is held to the strict schema of its kind, in the oldest release that knows its
fields and in the newest of the package kubernetes-validate, which has them all and needs no
cluster. What words become on their way through YAML, Kubernetes and a shell is looked at too.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

# The first with limits of each index that are on unless somebody turns them off.
RELEASES = ["1.29", kubernetes_validate.latest_version()]

SUITE = """schema = 1
description = "odd"
[[sweep]]
variants = ["cpu/flash", "cpu/naive"]
seq = [32, 64]
head_dim = 16
"""

# What YAML, Kubernetes' `$(NAME)` and a shell would each read otherwise.
ODD = "cpu*: #'\"$(HOME) $$ ${HOME}"

# A name of DNS.
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def made(regatta, folder, *words):
    command = [regatta, "submit", "--kubernetes", *words]
    done = subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "apply -f FILE" in done.stderr
    return done.stdout


def expanded(text):
    """What Kubernetes makes of a command's word: `$$` is `$`, an unknown `$(NAME)` stays."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(JOB_COMPLETION_INDEX\)", text)
    return text.replace("$$", "$")


def main(regatta):
    regatta = str(pathlib.Path(regatta).resolve())
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        suite = pathlib.Path(folder, "Odd.suite_1.toml")
        suite.write_text(SUITE, encoding="utf-8")
        common = ["--shards", "8", "--image", "example.org/regatta:1"]
        plain = made(regatta, folder, "native", *common)
        full = made(
            regatta,
            folder,
            "./Odd.suite_1.toml",
            *common,
            *["--run", "--filter", "cpu/*"],
            *["--namespace", "bench", "--storage-class", "nfs", "--volume", "1Ti"],
            *["--gpus", "2", "--cpus-per-task", "4", "--costs", ODD, "--strict"],
        )
        for text in (plain, full):
            manifests = list(yaml.safe_load_all(text))
            kinds = [manifest["kind"] for manifest in manifests]
            assert kinds == ["PersistentVolumeClaim", "Job", "Job"], kinds
            for manifest in manifests:
                assert LABEL.fullmatch(manifest["metadata"]["name"]), manifest
                for release in RELEASES:
                    kubernetes_validate.validate(manifest, release, strict=True)
                    count += 1
            check(manifests)

    claim, measure, merge = yaml.safe_load_all(full)
    assert claim["metadata"]["namespace"] == "bench"
    container = measure["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2, "cpu": "4"}
    words = [expanded(word) for word in container["command"]]
    assert words[:3] == ["regatta", "run", "./Odd.suite_1.toml"], words
    assert f"--costs={ODD}" in words, words
    assert words[-4:] == ["--shard", "env/8", "--out", "/reports/Odd.suite_1"], words
    shell, option, script = merge["spec"]["template"]["spec"]["containers"][0][
        "command"
    ]
    assert (shell, option) == ("sh", "-c")
    ran(expanded(script))
    print(f"{count} manifests are of the schemas of Kubernetes {', '.join(RELEASES)}")


def check(manifests):
    """What the API server refuses beyond what a schema says, and what the issue asks for."""
    claim, measure, merge = manifests
    spec = measure["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 8
    assert spec["backoffLimitPerIndex"] == 3
    for job in (measure, merge):
        pod = job["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Never"
        name = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert name == claim["metadata"]["name"]
        container = pod["containers"][0]
        assert container["volumeMounts"][0]["mountPath"] == "/reports"
        assert container["resources"]["limits"]["nvidia.com/gpu"] >= 1
    assert merge["spec"]["backoffLimit"] == 0
    steps = [manifest["metadata"]["labels"]["regatta/step"] for manifest in manifests]
    assert steps == ["measure", "measure", "merge"]


def ran(script):
    """Runs the script that merges, with a program in place of regatta that says how it was called.

    Shard 2 owes something twice, shard 3 dies each time it is begun.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "regatta")
        program.write_text(
            "#!/bin/sh\n"
            f"cd {folder}\n"
            'for word; do printf "[%s]" "$word" >> calls; done; echo >> calls\n'
            "case $1 in\n"
            "  next) n=$(grep -c '\\[2/8\\]' calls); [ $n = 2 ] && echo 3 || printf '2\\n3\\n' ;;\n"
            '  run) case "$*" in *" 3/8 "*) exit 137 ;; esac ;;\n'
            "  merge) exit 3 ;;\n"
            "esac\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        path = {"PATH": f"{folder}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", script], check=False, env=path)
        assert done.returncode == 3
        calls = pathlib.Path(folder, "calls").read_text(encoding="utf-8").splitlines()
        runs = [call for call in calls if call.startswith("[run]")]
        assert [re.search(r"\[(\d)/8\]", run)[1] for run in runs] == list("23233"), runs
        assert all(f"[--costs={ODD}]" in run for run in runs), runs
        assert calls[-1].startswith("[merge][/reports/Odd.suite_1/shards]"), calls[-1]
        assert "[--strict]" in calls[-1]


if __name__ == "__main__":
    main(sys.argv[1])
