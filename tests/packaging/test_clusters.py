"""The compose file and the one for Kubernetes: valid, and each node started with just the environment that it gives,
names replaced by addresses of this machine."""

import re
import socket
import urllib.error
import urllib.request

import yaml
from conftest import BINARY, LIMIT, PACKAGING, command_of, dockerfile, loopback, succeed, wait_for, whole_cluster_comes_up

COMPOSE = PACKAGING / "compose.yaml"
KUBERNETES = PACKAGING / "kubernetes/fairlock.yaml"


def cluster_comes_up(tmp_path, start, environments, hosts, secrets):
    """Starts a node with each environment; `hosts` says which address each name stands for, and `secrets` are the paths of
    files with secrets, the first one that of clients."""
    files = {secret: tmp_path / secret.replace("/", "_") for secret in secrets}
    for secret, file in files.items():
        file.write_text(f"open {secret}\n")
    secret_file = files[secrets[0]]
    instructions, image = dockerfile()
    known = []
    for name, env in environments.items():
        data = tmp_path / name
        data.mkdir()
        env = image | env
        # The network, the volume and the secret of a platform, here.
        for host, address in hosts.items():
            env = {key: value.replace(host, address) for key, value in env.items()}
        node = env["FAIRLOCK_NODE"]
        env = {key: value.replace("0.0.0.0", node.split(":")[0]) for key, value in env.items()}
        env = {key: re.sub(r"^/data$", str(data), value) for key, value in env.items()}
        env = {key: str(files.get(value, value)) for key, value in env.items()}
        known.append((node, env, start(command_of(instructions, "CMD"), env)))
    for _, _, node in known:
        node.wait_until_it_listens()
    servers = [node for node, _, _ in known]
    client = {"FAIRLOCK_SECRET_FILE": str(secret_file)}
    whole_cluster_comes_up(servers, client)
    succeed(BINARY, "acquire", "k", env=client | {"FAIRLOCK_SERVERS": ",".join(servers)})
    for _, _, node in known:
        assert not [line for line in node.log if "is no setting" in line], "".join(node.log)
    return known


def test_the_compose_file_is_one():
    succeed("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    compose = yaml.safe_load(COMPOSE.read_text())
    instructions, _ = dockerfile()
    for service in compose["services"].values():
        build = service["build"]
        assert (COMPOSE.parent / build["context"] / build["dockerfile"]).is_file()
        for volume in service["volumes"]:
            name, path = volume.split(":")
            assert name in compose["volumes"]
            assert f'["{path}"]' in [rest for word, rest in instructions if word == "VOLUME"]
        for name in service["secrets"]:
            variable = f"{name.upper()}_FILE"
            assert service["environment"][variable] == f"/run/secrets/{name}"
            assert name in compose["secrets"]
        assert len(service["secrets"]) == 2, "clients cannot join as a node"
    volumes = [volume for service in compose["services"].values() for volume in service["volumes"]]
    assert len(set(volumes)) == len(volumes), "two nodes share a volume"


def test_the_nodes_of_the_compose_file_become_a_cluster(tmp_path, start):
    compose = yaml.safe_load(COMPOSE.read_text())
    environments, hosts = {}, {}
    for name, service in compose["services"].items():
        assert service["hostname"] == name
        address = loopback()
        hosts[name] = address
        published = service["ports"][0]
        host, _, container = published.rpartition(":")
        # What clients are told is where the port is published.
        assert service["environment"]["FAIRLOCK_ADVERTISE"] == host and container == "7420"
        hosts[host] = f"{address}:{container}"
        environments[name] = service["environment"]
    known = cluster_comes_up(tmp_path, start, environments, hosts, ["/run/secrets/fairlock_secret", "/run/secrets/fairlock_cluster_secret"])
    for name, service in compose["services"].items():
        kind, *health = service["healthcheck"]["test"]
        assert kind == "CMD" and health[0] == "/usr/bin/fairlock"
        server = hosts[name] + ":7420"
        env = next(env for node, env, _ in known if node == server)
        succeed(BINARY, *health[1:], env=env | {"FAIRLOCK_SERVERS": server})


def manifests():
    return [document for document in yaml.safe_load_all(KUBERNETES.read_text()) if document]


def of_kind(kind):
    return [document for document in manifests() if document["kind"] == kind]


def test_kubernetes_knows_every_field(tmp_path):
    done = succeed("kubernetes-validate", "--strict", KUBERNETES)
    assert done.count("passed") == len(manifests()), done


def test_the_parts_of_the_kubernetes_file_fit_together():
    (stateful,) = of_kind("StatefulSet")
    (budget,) = of_kind("PodDisruptionBudget")
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind("Service")}
    template = stateful["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    labels = template["metadata"]["labels"]
    for selector in [stateful["spec"]["selector"], budget["spec"]["selector"]]:
        assert selector["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for service in services.values():
        assert service["selector"] == labels
        for port in service["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    (policy,) = of_kind("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == list(ports)
    assert ["from" in rule for rule in policy["spec"]["ingress"]] == [False, True], "the page is not everybody's to reach"
    headless = services[stateful["spec"]["serviceName"]]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted == claims | {volume["name"] for volume in pod["volumes"]}
    # An orderly stop ends by itself, and a node cut short by the platform would hand nothing over.
    _, shown = succeed(BINARY, "serve", "--help").split("--drain-timeout", 1)
    drain = float(re.search(r"\[default:\s+([\d.]+)\]", shown)[1])
    assert pod["terminationGracePeriodSeconds"] > 2 * drain
    assert "cpu" not in container["resources"]["limits"]
    # By the figures of docs/operations.md (Sizing), with connections and requests that are parked.
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    admitted = 116 * int(env["FAIRLOCK_MAX_KEYS"]) + 90 * int(env["FAIRLOCK_MAX_WAITERS"]) + 1024 * 100_000
    admitted += (int(env["FAIRLOCK_MAX_UNREAD_TOTAL"].removesuffix("MiB")) + 256) << 20
    assert container["resources"]["limits"]["memory"] == "2Gi" and admitted < 0.75 * (2 << 30)


def test_the_pods_become_a_cluster(tmp_path, start):
    (stateful,) = of_kind("StatefulSet")
    spec = stateful["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert "command" not in container and "args" not in container
    environments, hosts = {}, {}
    for ordinal in range(spec["replicas"]):
        name = f"{stateful['metadata']['name']}-{ordinal}"
        fields = {"metadata.name": name, "metadata.namespace": "default"}
        env = {}
        for variable in container["env"]:
            if "value" in variable:
                # As the kubelet does: with the variables that stand before.
                env[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], variable["value"])
            else:
                env[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        environments[name] = env
        hosts[f"{name}.{spec['serviceName']}.default.svc"] = loopback()
    peers = environments["fairlock-0"]["FAIRLOCK_PEERS"].split(",")
    assert peers == [f"{host}:7420" for host in hosts], "every pod is a peer, in the order of their numbers"
    secrets = [f"/run/secrets/fairlock/{name}" for name in ["secret", "cluster_secret", "admin_secret"]]
    assert [value for name, value in environments["fairlock-0"].items() if name.endswith("SECRET_FILE")] == secrets
    for command in ["from-file=secret", "from-file=cluster_secret", "from-file=admin_secret"]:
        assert command in KUBERNETES.read_text()
    known = cluster_comes_up(tmp_path, start, environments, hosts, secrets)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for node, env, _ in known:
        page = f"http://{node.split(':')[0]}:{ports['admin']}"
        for probe, path in paths.items():
            get = container[probe]["httpGet"]
            assert get["path"] == path
            assert ports[get["port"]] == ports["admin"]
            # What the kubelet asks has no secret.
            wait_for(lambda: status_of(page + path) == 200, f"{path} of {node}")
        assert status_of(page + "/metrics") == 401
        token = open(env["FAIRLOCK_ADMIN_SECRET_FILE"]).read().strip()
        assert status_of(page + "/metrics", token) == 200


def test_a_pod_is_ready_only_when_it_could_take_over(tmp_path, start):
    """The second of two nodes waits for the first, which does not run: alive, and not ready."""
    one, two = loopback(), loopback()
    env = {
        "FAIRLOCK_PEERS": f"{one}:7420,{two}:7420",
        "FAIRLOCK_NODE": f"{two}:7420",
        "FAIRLOCK_ADMIN": f"{two}:7429",
        "FAIRLOCK_DATA_DIR": str(tmp_path),
        "FAIRLOCK_DISCOVERY_TIMEOUT": "5",
    }
    # The other place is taken by somebody who listens and says nothing, so that the node has to wait.
    with socket.create_server((one, 7420)):
        node = start(["serve"], env).wait_until_it_listens()
        assert status_of(f"http://{two}:7429/healthz") == 200, node.log
        assert status_of(f"http://{two}:7429/readyz") == 503
        wait_for(lambda: status_of(f"http://{two}:7429/readyz") == 200, "alone it becomes active")


def status_of(url, token=None):
    """What a GET is answered with."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
