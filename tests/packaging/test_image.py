"""The image: linted, its context complete, and what it would hold run in a root of its own."""

import fnmatch
import os
import re
import shutil
import subprocess

import pytest
from conftest import BINARY, PACKAGING, ROOT, clean, command_of, dockerfile, loopback, run, skip, succeed


def test_the_dockerfile_has_nothing_that_hadolint_knows_better():
    succeed("hadolint", "--failure-threshold", "style", PACKAGING / "Dockerfile")


def test_bases_are_pinned_and_the_last_user_is_not_root():
    text = (PACKAGING / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    for base in re.findall(r"^FROM (\S+)", text, re.M):
        for name, value in arguments.items():
            base = base.replace("${%s}" % name, value)
        assert base == "scratch" or re.search(r":\d+\.\d+\.\d+-[a-z-]+$", base), base
    instructions, _ = dockerfile()
    user = [rest for word, rest in instructions if word == "USER"][-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), user


def test_every_file_names_the_version_of_the_binary():
    _, version = succeed(BINARY, "--version").split()
    named = []
    for path in [PACKAGING / "Dockerfile", PACKAGING / "compose.yaml", *(PACKAGING / "kubernetes").iterdir()]:
        named += re.findall(r'(?:fairlock:|image\.version=")(\d+\.\d+\.\d+)', path.read_text())
    assert len(named) >= 5 and set(named) == {version}


def in_the_context(path, rules):
    """Whether a builder sends a file: of the rules that match it or a folder above it, the last one counts."""
    sent = True
    parts = path.split("/")
    for rule in rules:
        keep = rule.startswith("!")
        pattern = rule.removeprefix("!")
        for depth in range(1, len(parts) + 1):
            # `**/x` is x in any folder, the uppermost too.
            above = "/".join(parts[:depth])
            names = [above, *("/".join(parts[start:depth]) for start in range(1, depth))]
            wanted = pattern.removeprefix("**/")
            candidates = names if pattern.startswith("**/") else [above]
            if pattern == "**" or any(fnmatch.fnmatchcase(name, wanted) for name in candidates):
                sent = keep
                break
    return sent


def test_the_context_has_all_that_the_build_reads_and_no_secret(tmp_path):
    rules = (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    for strange in ["packaging/secret", ".git/config", "target/debug/fairlock", "core/target/x", ".env", "ca.key"]:
        assert not in_the_context(strange, rules), strange
    files = succeed("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for file in files:
        if in_the_context(file, rules) and (ROOT / file).exists():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tmp_path / file)
    # The whole workspace is there, with a lock file that fits, and so is what the sources take in.
    succeed("cargo", "tree", "--locked", "--offline", "--package", "fairlock-server", cwd=tmp_path)
    assert (tmp_path / "packaging/image-root.sh").stat().st_mode & 0o111
    for source in [*(tmp_path / "core/src").rglob("*.rs"), *(tmp_path / "server/src").rglob("*.rs")]:
        for included in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
            assert (source.parent / included).exists(), f"{source}: {included}"


@pytest.fixture
def image(tmp_path):
    """What the image holds, as a folder."""
    if os.getuid() != 0:
        skip("only root can give a process another root folder")
    root = tmp_path / "image"
    succeed(PACKAGING / "image-root.sh", BINARY, root)
    # The container's platform brings these.
    (root / "proc").mkdir()
    (root / "run").mkdir()
    return root


def inside(image, *command):
    """A command as a process of the image's user, with the image as its root."""
    instructions, _ = dockerfile()
    user = [rest for word, rest in instructions if word == "USER"][-1]
    return ["chroot", f"--userspec={user}", str(image), *command]


def test_what_the_image_holds_is_enough_to_serve_and_to_be_healthy(image, start):
    instructions, env = dockerfile()
    host = loopback()
    (image / "run/secret").write_text("open sesame\n")
    env |= {"FAIRLOCK_SECRET_FILE": "/run/secret", "FAIRLOCK_LISTEN": f"{host}:7420"}
    command = command_of(instructions, "ENTRYPOINT") + command_of(instructions, "CMD")
    health = next(rest for word, rest in instructions if word == "HEALTHCHECK")
    health = re.search(r"CMD (\[.*\])", health)[1].strip("[]").replace('"', "").split(", ")
    asked = env | {"FAIRLOCK_SERVERS": f"{host}:7420"}

    assert run(*inside(image, *health), env=asked).returncode == 69, "nobody serves yet"
    node = start([], env, program=inside(image, *command)).wait_until_it_listens()
    succeed(*inside(image, *health), env=asked)
    succeed(*inside(image, "/usr/bin/fairlock", "acquire", "k"), env=asked)
    # Its data is in the volume, and it is its user's.
    volume = next(rest for word, rest in instructions if word == "VOLUME").strip('[]"')
    assert env["STATE_DIRECTORY"] == volume
    assert (image / volume.strip("/") / "term").stat().st_uid == 10001
    # Names are looked up by what the image holds, too.
    (image / "etc/hosts").write_text(f"{host} here.example\n")
    named = asked | {"FAIRLOCK_SERVERS": "here.example:7420"}
    succeed(*inside(image, *health), env=named)
    assert node.stop() == 0


def test_an_image_without_a_secret_refuses_to_listen_and_says_what_to_do(image):
    instructions, env = dockerfile()
    command = command_of(instructions, "ENTRYPOINT") + command_of(instructions, "CMD")
    done = subprocess.run(inside(image, *command), env=clean(env), capture_output=True, text=True, timeout=30)
    assert done.returncode == 64
    assert "secret_file" in done.stderr and "insecure" in done.stderr


def test_the_image_is_small_and_has_no_shell(image):
    names = {path.name for path in image.rglob("*") if path.is_file()}
    assert not names & {"sh", "bash", "dash", "busybox", "ls", "apt"}
    libraries = sum(path.stat().st_size for path in image.rglob("*") if path.is_file() and path.name != "fairlock")
    assert libraries < 8 << 20, f"{libraries} bytes beside the binary"
