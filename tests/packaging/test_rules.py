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


ON = '{job="fairlock",instance="%s"%s}'


def on(name, values, labels="", instance="a"):
    """A series of a node, one value each half a minute: `1x90` stays, `0+1x90` rises."""
    labels = ON % (instance, f",{labels}" if labels else "")
    return {"series": name + labels, "values": values}


def active(values, instance="a"):
    return on("fairlock_role", values, 'role="active"', instance)


def times(name, *buckets):
    return [on(f"fairlock_{name}_seconds_bucket", values, f'le="{bound}"') for bound, values in buckets]


# For each alert series with which it fires, and series that look much the same and with which it must not.
CASES = {
    "FairlockNoActiveNode": ([active("0x90")], [active("0x90"), active("1x90", "b")]),
    "FairlockTwoActiveNodes": ([active("1x90"), active("1x90", "b")], [active("1x90"), active("0x90", "b")]),
    "FairlockNodeDown": ([on("up", "0x90")], [on("up", "1x90")]),
    "FairlockPeerDown": (
        [on("fairlock_peer_up", "0x90", 'peer="c"'), on("fairlock_peer_up", "0x90", 'peer="c"', "b")],
        [on("fairlock_peer_up", "0x90", 'peer="c"'), on("fairlock_peer_up", "1x90", 'peer="c"', "b")],
    ),
    "FairlockNotReady": ([on("fairlock_ready", "0x90")], [on("fairlock_ready", "1x90")]),
    "FairlockNothingCouldTakeOver": (
        # What a standby says of the active node does not count.
        [active("1x90"), on("fairlock_peer_complete", "0x90", 'peer="b"'), active("0x90", "b")]
        + [on("fairlock_peer_complete", "1x90", 'peer="a"', "b")],
        [active("1x90"), on("fairlock_peer_complete", "0x90", 'peer="b"')]
        + [on("fairlock_peer_complete", "1x90", 'peer="c"')],
    ),
    "FairlockStandbyLags": (
        [on("fairlock_replication_lag_changes", "200000x90", 'peer="b"')],
        [on("fairlock_replication_lag_changes", "50x90", 'peer="b"')],
    ),
    "FairlockRestarts": (
        [on("process_start_time_seconds", "1x19 2x19 3x19 4x40")],
        [on("process_start_time_seconds", "1x39 2x60")],
    ),
    "FairlockLockHeldLong": (
        [active("1x90"), on("fairlock_oldest_hold_seconds", "90000x90")],
        [active("0x90"), on("fairlock_oldest_hold_seconds", "90000x90")],
    ),
    "FairlockQueueLong": (
        [active("1x90"), on("fairlock_longest_queue_requests", "2000x90")],
        [active("0x90"), on("fairlock_longest_queue_requests", "2000x90")],
    ),
    "FairlockWaitsLong": (
        times("wait", ("64", "0x90"), ("128", "0+10x90"), ("+Inf", "0+10x90")),
        times("wait", ("1", "0+10x90"), ("128", "0+10x90"), ("+Inf", "0+10x90")),
    ),
    "FairlockHandOversSlow": (
        times("hand_over", ("0.01", "0x90"), ("0.1", "0+10x90"), ("+Inf", "0+10x90")),
        times("hand_over", ("0.001", "0+10x90"), ("0.1", "0+10x90"), ("+Inf", "0+10x90")),
    ),
    "FairlockLeasesExpire": (
        [on("fairlock_leases_expired_total", "0+2x90"), on("fairlock_grants_total", "0+10x90")],
        # A standby counts nothing of its copy.
        [on("fairlock_leases_expired_total", "0+2x90"), on("fairlock_grants_total", "0+100x90")]
        + [on("fairlock_leases_expired_total", "0x90", "", "b"), on("fairlock_grants_total", "0x90", "", "b")],
    ),
    "FairlockLimitReached": (
        [on("fairlock_limits_reached_total", "0+1x90", 'limit="max_keys"')],
        [on("fairlock_limits_reached_total", "0+1x90", 'limit="idle_timeout"')],
    ),
    "FairlockDescriptorsRunOut": (
        [on("process_open_fds", "95x90"), on("process_max_fds", "100x90")],
        [on("process_open_fds", "50x90"), on("process_max_fds", "100x90")],
    ),
    "FairlockJournalFails": (
        [on("fairlock_journal_failures_total", "0+1x90")],
        [on("fairlock_journal_failures_total", "7x90")],
    ),
    "FairlockCannotAccept": ([on("fairlock_accept_pauses_total", "0+1x90")], [on("fairlock_accept_pauses_total", "7x90")]),
    "FairlockWrongSecrets": (
        [on("fairlock_connections_cut_off_total", "0+30x90", 'reason="not_admitted"')],
        [on("fairlock_connections_cut_off_total", "0+1x90", 'reason="not_admitted"')],
    ),
    "FairlockWrongAdminSecrets": (
        [on("fairlock_admin_refused_total", "0+30x90")],
        [on("fairlock_admin_refused_total", "0+1x90")],
    ),
    "FairlockHandshakesFail": (
        [on("fairlock_connections_cut_off_total", "0+30x90", 'reason="handshake"')],
        [on("fairlock_connections_cut_off_total", "0+30x90", 'reason="silent"')],
    ),
    "FairlockDenied": (
        [on("fairlock_refusals_total", "0+60x90", 'code="denied"')],
        [on("fairlock_refusals_total", "0+60x90", 'code="busy"')],
    ),
}


def test_every_rule_fires_when_it_should_and_is_silent_when_it_should(tmp_path):
    assert set(CASES) == {rule["alert"] for group in groups() for rule in group["rules"]}
    tests = []
    for alert, cases in CASES.items():
        for series, fires in zip(cases, [True, False], strict=True):
            expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
            samples = [{"labels": "{}", "value": 1}] if fires else []
            tests.append(
                {
                    "name": f"{alert} {'fires' if fires else 'is silent'}",
                    "interval": "30s",
                    "input_series": series,
                    "promql_expr_test": [{"expr": expr, "eval_time": "40m", "exp_samples": samples}],
                }
            )
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}))
    done = run(need("promtool"), "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_them():
    done = run(need("promtool"), "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
