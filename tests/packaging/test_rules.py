"""The alert rules: well-formed, and each with all that somebody needs who is woken by it. That the metrics in them exist is tested
with the server, in server/tests/cli/admin/rules.rs."""

import re

import yaml
from conftest import PACKAGING, ROOT, need, run

RULES = PACKAGING / "prometheus-rules.yaml"


class Strict(yaml.SafeLoader):
    """YAML without keys that stand there twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice in {node.start_mark}: {keys}"
        return super().construct_mapping(node, deep)


def groups():
    return yaml.load(RULES.read_text(), Strict)["groups"]


def test_every_rule_says_what_is_wrong_and_what_to_do():
    names = [group["name"] for group in groups()]
    assert len(names) == len(set(names))
    rules = [rule for group in groups() for rule in group["rules"]]
    alerts = [rule["alert"] for rule in rules]
    assert len(alerts) == len(set(alerts)) and len(alerts) >= 15
    for group in groups():
        assert set(group) == {"name", "rules"}
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert re.fullmatch(r"Fairlock[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), rule
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert not rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
        for text in rule["annotations"].values():
            assert text.count("{{") == text.count("}}")
        check_brackets(rule["expr"])


def check_brackets(expression):
    """Brackets and quotes are closed in their order."""
    opened = []
    bare = re.sub(r'"[^"]*"', "", expression)
    assert '"' not in bare, expression
    for letter in bare:
        if letter in "([{":
            opened.append(letter)
        elif letter in ")]}":
            assert opened and "([{".index(opened.pop()) == ")]}".index(letter), expression
    assert not opened, expression


def test_every_alert_stands_in_the_operations_page():
    page = (ROOT / "docs/operations.md").read_text()
    for group in groups():
        for rule in group["rules"]:
            assert f"`{rule['alert']}`" in page, rule["alert"]


def test_prometheus_takes_them():
    done = run(need("promtool"), "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
