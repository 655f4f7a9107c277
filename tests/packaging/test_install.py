"""The install script into a folder, and what it lays there: manual pages and completions in their real shells."""

import os
import re

import pytest
from conftest import BINARY, PACKAGING, need, run, succeed


def commands():
    """What `fairlock --help` lists."""
    text = succeed(BINARY, "--help")
    listed = text.split("Commands:\n", 1)[1].split("\n\n", 1)[0]
    names = re.findall(r"^  ([\w-]+) ", listed, re.M)
    return [name for name in names if name != "help"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    succeed(PACKAGING / "install.sh", "/usr", env={"DESTDIR": str(folder), "BINARY": str(BINARY)})
    return folder


def test_everything_is_where_it_is_looked_for(installed):
    program = installed / "usr/bin/fairlock"
    assert succeed(program, "--version") == succeed(BINARY, "--version")
    for path in [
        "usr/share/man/man1/fairlock.1",
        "usr/share/bash-completion/completions/fairlock",
        "usr/share/zsh/site-functions/_fairlock",
        "usr/share/fish/vendor_completions.d/fairlock.fish",
        "usr/lib/sysusers.d/fairlock.conf",
        "usr/share/doc/fairlock/operations.md",
        "etc/fairlock/fairlock.toml",
    ]:
        mode = (installed / path).stat().st_mode & 0o777
        assert mode == 0o644, f"{path}: {mode:o}"
    unit = (installed / "usr/lib/systemd/system/fairlock.service").read_text()
    assert "ExecStart=/usr/bin/fairlock serve" in unit and "/usr/local" not in unit


def test_settings_that_are_there_stay(installed):
    settings = installed / "etc/fairlock/fairlock.toml"
    settings.write_text("max_keys = 5\n")
    succeed(PACKAGING / "install.sh", "/usr", env={"DESTDIR": str(installed), "BINARY": str(BINARY)})
    assert settings.read_text() == "max_keys = 5\n"


def test_each_command_has_a_page_with_each_of_its_options(installed):
    folder = installed / "usr/share/man/man1"
    expected = {"fairlock.1", *(f"fairlock-{name}.1" for name in commands())}
    assert {path.name for path in folder.iterdir()} == expected
    for name in commands():
        page = (folder / f"fairlock-{name}.1").read_text().replace("\\-", "-")
        options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", succeed(BINARY, name, "--help"), re.M))
        assert options, name
        missing = {option for option in options if option not in page}
        assert not missing, f"{name}: {missing}"
    text = succeed(need("man"), "--local-file", "--warnings", folder / "fairlock-serve.1", env={"MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert "--data-dir" in text and "FAIRLOCK_DATA_DIR" in text


def test_the_pages_are_right(installed):
    done = run(need("mandoc"), "-Tlint", "-W", "warning", *sorted((installed / "usr/share/man/man1").iterdir()))
    # Pages are the same in two builds, so they have no date.
    wrong = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if "cannot parse date" not in line and "skipping paragraph macro" not in line
    ]
    assert wrong == []


def complete_in_bash(installed, line):
    script = f"""
        source {installed}/usr/share/bash-completion/completions/fairlock
        COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}}
        read -ra COMP_WORDS <<<"$COMP_LINE"
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        handler=$(complete -p fairlock | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        "$handler" fairlock "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return succeed("bash", "--norc", "-c", script).split()


def complete_in_fish(installed, line):
    fish = need("fish")
    script = f"source {installed}/usr/share/fish/vendor_completions.d/fairlock.fish; complete --do-complete '{line}'"
    return [row.split("\t")[0] for row in succeed(fish, "--no-config", "-c", script).splitlines()]


def complete_in_zsh(installed, line):
    """zsh completes at a terminal only, so it gets one, and a completer that prints what it was offered."""
    zsh = need("zsh")
    script = f"""
        zmodload zsh/zpty
        zpty -b inner {zsh} -f -i
        zpty -w inner 'PROMPT=; RPROMPT=; fpath=({installed}/usr/share/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D'
        zpty -w inner 'compadd() {{ local -a it; builtin compadd -O it "$@"; print -rl -- "<<"${{^it}}">>"; builtin compadd "$@" }}; stty -echo; print READY'
        zpty -r -m inner out '*READY*READY*' || zpty -r -m inner out '*READY*'
        zpty -w -n inner $'{line}\\t'
        # What comes after the completion is read after it: the line is cleared, and a word tells the end.
        zpty -w inner $'\\x15print EN""D'
        zpty -r -m inner out '*END*' && print -r -- "$out"
        zpty -d inner
    """
    return re.findall(r"<<(\S+?)>>", run(zsh, "-f", "-c", script).stdout)


@pytest.mark.parametrize("complete", [complete_in_bash, complete_in_fish, complete_in_zsh])
def test_shells_complete_commands_and_options(installed, complete):
    assert "status" in complete(installed, "fairlock st")
    assert "--keep-alive" in complete(installed, "fairlock run --keep")
    # `fairlock` alone is `fairlock serve`.
    assert "--listen" in complete(installed, "fairlock --lis")
    assert not [word for word in complete(installed, "fairlock run") if "guard" in word]


def test_who_installs_where_systemd_does_not_look_is_told_how_it_finds_the_unit(tmp_path):
    env = {"DESTDIR": str(tmp_path), "BINARY": str(BINARY)}
    assert "systemctl link /opt/fairlock/lib/systemd/system/fairlock.service" in succeed(
        PACKAGING / "install.sh", "/opt/fairlock", env=env
    )
    assert "systemctl link" not in succeed(PACKAGING / "install.sh", "/usr/local", env=env)


def test_who_installs_for_himself_gets_nothing_of_the_system_and_is_told_so(tmp_path):
    """Below a home, and without root, which a program named `id` claims."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    for prefix, env in [
        (tmp_path / "home/.local", {"HOME": str(tmp_path / "home")}),
        (tmp_path / "opt", {"HOME": "/nonexistent", "PATH": path}),
    ]:
        said = succeed(PACKAGING / "install.sh", f"--prefix={prefix}", env={"DESTDIR": "", "BINARY": str(BINARY), **env})
        assert f"installed to {prefix}, without the systemd unit" in said
        assert (prefix / "bin/fairlock").exists() and (prefix / "share/doc/fairlock/fairlock.sample.toml").exists()
        assert not (prefix / "lib").exists()


@pytest.mark.parametrize("arguments", [["help"], ["relative/path"], [""], ["--frobnicate"], ["--prefix=x"], ["--prefix", "/x"], ["/x", "/y"]])
def test_only_an_absolute_path_is_a_prefix(tmp_path, arguments):
    done = run(PACKAGING / "install.sh", *arguments, env={"DESTDIR": str(tmp_path), "BINARY": str(BINARY)}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, "") and "packaging/install.sh" in done.stderr
    assert not list(tmp_path.iterdir())
