"""Laws of scrubbing: no name of a person or machine and no secret reaches a bundle, and what is left can be read."""

from __future__ import annotations

import socket
import time
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bundles.error import BundleError
from bundles.files import list_files
from bundles.machine_names import collect_machine_names, this_machine
from bundles.partial import begin
from bundles.scrub import MachineNames, Scrubber, TakenOver
from bundles.writer import EvidenceStore, seal
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence, EnvironmentEvidence, GapEvidence
from harness.model.words import Tier
from tests.bundles.examples import (
    CHANGE,
    MANIFEST_TEXT,
    POLICY_TEXT,
    decide_example,
    environment,
    evidence_undecided,
    plain_report,
    write_bundle,
)

NAMES = MachineNames(
    folders={"/srv/people/zaphod": "home", "/data/clone": "cwd"},
    words={"zaphod": "user", "betelgeuse": "host"},
    secrets={"correct-horse-battery": "HF_TOKEN"},
)
SCRUBBER = Scrubber(names=NAMES)
TOKEN = "ghp_" + "a1B2c3D4" * 4
PLANTED = (
    f"zaphod@betelgeuse read /srv/people/zaphod/x.py and /home/ford/y.py at 10.11.12.13 [fe80::1] "
    f"with {TOKEN} correct-horse-battery, mail ford@example.org"
)
LEAKS = ("zaphod", "betelgeuse", "ford", "10.11.12.13", "fe80", "ghp_", "correct-horse", "example.org")
EVIDENCE: tuple[type[BaseModel], ...] = get_args(get_args(AnyEvidence)[0])


def planted(annotation: Any) -> Any:
    """A JSON value of the type, with the planted text wherever a text may stand."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return planted(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return planted(next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return [planted(a) for a in arguments if a is not Ellipsis]
    if origin in (dict, Mapping):
        return {planted(arguments[0]): planted(arguments[1])}
    if annotation is str:
        return PLANTED
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(iter(annotation)).value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {name: planted(field.annotation) for name, field in annotation.model_fields.items()}
    return {int: 1, float: 1.0, bool: True}[annotation]


@pytest.mark.parametrize("kind", EVIDENCE, ids=lambda kind: kind.__name__)
def test_no_text_field_of_any_evidence_keeps_a_planted_name_or_secret(kind: type[Any]) -> None:
    record = kind.model_validate(planted(kind))
    kept = SCRUBBER.record(record).model_dump_json()
    assert PLANTED in record.model_dump_json()
    assert not [leak for leak in LEAKS if leak in kept]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/srv/people/zaphod/.venv/lib/x.py", "<home>/.venv/lib/x.py"),
        ("/data/clone/a.py", "<cwd>/a.py"),
        ("/home/ford/x and /Users/ford/y", "<home>/x and <home>/y"),
        ("/mnt/nfs/home/ford/x", "<home>/x"),
        (r"C:\Users\ford\x", r"<home>\x"),
        ("ssh Zaphod@betelgeuse", "ssh <user>@<host>"),
        ("ford.p+x@mail.example.org.", "<email>."),
        ("http://10.1.2.3:8000/v1", "http://<ip>:8000/v1"),
        ("bound to [2001:db8::17]:80", "bound to [<ip>]:80"),
        ("connect fe80::1: refused", "connect <ip>: refused"),
        ("::ffff:10.1.2.3", "::ffff:<ip>"),
        ("ip-10-0-3-7.internal", "<ip>.internal"),
        ("00:1a:2b:3c:4d:5e", "<mac>"),
        ("GPU-12345678-1234-1234-1234-123456789abc", "<gpu>"),
        ("key correct-horse-battery!", "key <HF_TOKEN>!"),
        (f"token {TOKEN}", "token <secret>"),
        ("hf_" + "x" * 30, "<secret>"),
        ("AKIA" + "A" * 16, "<secret>"),
        ("eyJhbGciOiJub25l.eyJzdWIiOiJmb3Jk.c2lnbmF0dXJl", "<secret>"),
        ('{"api_key": "12345678"}', '{"api_key": "<secret>"}'),
        ("password=hunter22", "password=<secret>"),
        ("passphrase: hunter22 pwd=hunter22", "passphrase: <secret> pwd=<secret>"),
        ("GITHUB_TOKEN=shorttoken", "GITHUB_TOKEN=<secret>"),
        ("token: shorttoken123", "token: <secret>"),
        (
            "vllm serve --api-key hunter22 --hf-token=hunter22",
            "vllm serve --api-key <secret> --hf-token=<secret>",
        ),
        ("Authorization: token hunter22", "Authorization: token <secret>"),
        ("nvapi-" + "aB-1" * 6, "<secret>"),
        ("sk_live_" + "a1" * 8, "<secret>"),
        ("https://hooks.slack.com/services/T000/B000/abcdefghij", "https://<secret>"),
        ("sk-" + "a1" * 12, "<secret>"),
        ("sk-proj-" + "aB_1" * 12, "<secret>"),
        ("sk-ant-api03-" + "aB-1" * 12, "<secret>"),
        ("pypi-AgEIcHlwaS5vcmc" + "x" * 16, "<secret>"),
        ("/Users/Ford Prefect/x", "<home>/x"),
        (r"C:\Users\Ford Prefect\x", r"<home>\x"),
        ("/data/users/ford/x /scratch/ford/y", "<home>/x <home>/y"),
        ("file:%2Fhome%2Fford%2Fx", "file:<home>%2Fx"),
        ("ford@gpu-node-17:", "<user>@<host>:"),
        ("00-1a-2b-3c-4d-5e", "<mac>"),
        ("GPU-12345678-1234-1234-1234-123456789ABC", "<gpu>"),
        ("Serial Number: 1650123456789", "Serial Number: <serial>"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer <secret>"),
        ("https://ford:towel@example.org/x", "https://<secret>@example.org/x"),
        (
            "_CudaDeviceProperties(uuid=12345678-1234-1234-1234-123456789abc)",
            "_CudaDeviceProperties(uuid=<uuid>)",
        ),
        ("/lustre/a/b/c/d/e/home/ford/x", "<home>/x"),
        ("Signed-off-by: Ford Prefect <ford@example.org>", "Signed-off-by: <user> <<email>>"),
        ("USER=ford LOGNAME='ford'", "USER=<user> LOGNAME='<user>'"),
        ("tcp://heart-of-gold:29500", "tcp://<machine>:29500"),
        ("ray://head.gold.example.org", "ray://<machine>"),
        ("http://gold:8000/v1", "http://<machine>:8000/v1"),
        ("http://ford@gold:8000/v1", "http://ford@<machine>:8000/v1"),
        ("https://gpu17.lab.example.org/x", "https://<machine>/x"),
        ("https://wiki-2.gold.lan/x", "https://<machine>/x"),
        (
            "vllm serve --data-parallel-address gold --host=gold",
            "vllm serve --data-parallel-address <machine> --host=<machine>",
        ),
        ("HOSTNAME=gold MASTER_ADDR=gold", "HOSTNAME=<machine> MASTER_ADDR=<machine>"),
        ("SLURM_JOB_NODELIST=gold[01-04,7]", "SLURM_JOB_NODELIST=<machine>"),
        ('{"hostname": "gold"}', '{"hostname": "<machine>"}'),
        ("hostname: gold17", "hostname: <machine>"),
        ("gold:4711:4712 [0] NCCL INFO Bootstrap", "<machine>:4711:4712 [0] NCCL INFO Bootstrap"),
        ("failed to connect to [gold-1]:29500", "failed to connect to [<machine>]:29500"),
        ("on dgx17.local, then fords-macbook.local.", "on <machine>, then <machine>."),
        ("head.default.svc.cluster.local head.default.svc", "<machine> <machine>"),
        ("heart.gold.example.edu refused", "<machine> refused"),
        ("filer.gold.example.edu:/export", "<machine>:/export"),
        ("i-0123456789abcdef0 DESKTOP-AB12CDE", "<machine> <machine>"),
        ("gsk_" + "aB3dE6gH9jK2" * 4, "<secret>"),
        ("r8_" + "Ab1Cd2Ef3Gh4" * 3 + ".", "<secret>."),
        ("nobody_" + "Ab1Cd2Ef3Gh4" * 3, "<secret>"),
        (
            "eyJhbGciOiJub25lIn0.eyJzdWIiOiJmb3JkIn0. eyJhbGciOiJkaXIifQ..aXY.Y2lwaGVy.dGFn",
            "<secret> <secret>",
        ),
        (
            "AccountName=x;AccountKey=abcDEF123+/aa==;Suffix=core",
            "AccountName=x;AccountKey=<secret>;Suffix=core",
        ),
        (
            "https://x.example/f?sv=2022-11-02&sig=abc%2BDEF1234567890%3D",
            "https://x.example/f?sv=2022-11-02&sig=<secret>",
        ),
        (
            "/k?X-Amz-Date=20261130&X-Amz-Credential=ABCDEF%2F2026%2Fs3&amp;X-Amz-Signature=" + "ab12" * 16,
            "/k?X-Amz-Date=20261130&X-Amz-Credential=<secret>&amp;X-Amz-Signature=<secret>",
        ),
        (r"\u0026X-Amz-Security-Token=FwoGZXIvYXdz", r"\u0026X-Amz-Security-Token=<secret>"),
        (
            "SignedHeaders=host;x-amz-date, Signature=" + "ab12" * 16,
            "SignedHeaders=host;x-amz-date, Signature=<secret>",
        ),
        ("https://f.example/api?code=AbCdEf1234567890xyz", "https://f.example/api?code=<secret>"),
        ("token: abcdef.0123456789abcdef", "token: <secret>"),
        ("client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ==", "client-key-data: <secret>"),
        ("certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURQ==", "certificate: <secret>"),
        ("/nfs/home1/ford/x /u/ford/x /scratch2/ford", "<home>/x <home>/x <home>"),
        (
            "PATH=/bin:/work/ford/bin file:///work/ford/x /gpfs/u/ford",
            "PATH=/bin:<home>/bin file://<home>/x <home>",
        ),
        (
            "uid=1234(ford) gid=100(staff) groups=100(staff),27(video)",
            "uid=1234(<user>) gid=100(<user>) groups=100(<user>),27(<user>)",
        ),
        ("drwxr-xr-x  2 ford crew 4096 Nov x", "drwxr-xr-x  2 <user> <user> 4096 Nov x"),
        ("PMI_HOST=gold PMIX_HOSTNAME: gold", "PMI_HOST=<machine> PMIX_HOSTNAME: <machine>"),
        ("OMPI_MCA_orte_node_regex=gold[2:17-18]@0(2)", "OMPI_MCA_orte_node_regex=<machine>"),
        ("HOST=gold,silver LSB_HOSTS='gold1 gold2'", "HOST=<machine> LSB_HOSTS='<machine>'"),
        ("LSB_MCPU_HOSTS=gold1 4 gold2 4", "LSB_MCPU_HOSTS=<machine> 4"),
        (
            "SLURM_JOB_USER=ford SLURM_SUBMIT_HOST=login SLURM_JOB_ACCOUNT=crew SLURM_TOPOLOGY_ADDR=s1.gold",
            "SLURM_JOB_USER=<user> SLURM_SUBMIT_HOST=<machine> SLURM_JOB_ACCOUNT=<user> SLURM_TOPOLOGY_ADDR=<machine>",
        ),
        (
            '{"SLURM_JOB_USER": "ford", "SLURMD_NODENAME": "gold"}',
            '{"SLURM_JOB_USER": "<user>", "SLURMD_NODENAME": "<machine>"}',
        ),
        ("-----BEGIN PRIVATE KEY-----\nMC4\n-----END PRIVATE KEY-----", "<secret>"),
    ],
)
def test_what_names_somebody_is_replaced_and_the_rest_can_be_read(text: str, kept: str) -> None:
    assert SCRUBBER.text(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "docs/home/index.md",
        "git@github.com:owner/repo",
        "127.0.0.1:8000 0.0.0.0",
        "nvidia-curand-cu12==10.3.9.90",
        "12:30:45 std::vector aten::add dead::beef",
        "eos_token='</s>' num_tokens=512 max_tokens: 1024",
        "zaphods betelgeuse5",
        "/srv/people/zaphodx",
        "vllm 0.32.0, driver 570.133.20",
        "docs/pypi-publish-workflow.md docs/sk-learn-baseline-notes-2024.md task-sk-learn-example-v2",
        "token: Hello token=12345678901234 the max-token length --tokenizer kimi-k3-tokenizer",
        "PWD=/srv/x EOS_TOKEN=</s> MAX_KEY=12",
        "actions/checkout@v4 pass@10 accuracy@top-1-of-n",
        "26-11-30-10-22-11 cmpl-12345678-1234-1234-1234-123456789abc",
        "serial: sequential, serial number",
        "chatcmpl-12345678-1234-1234-1234-123456789abc-0 urn:fasttrack:judgement:v1",
        "torch.distributed.rpc.internal networkx.algorithms.community.local threading.local pandas.io.formats.info",
        "https://docs.vllm.ai/en/latest docs.vllm.ai/en https://files.pythonhosted.org/x.whl www.example.org",
        "http://localhost:8000 tcp://127.0.0.1:5 --host localhost --host 0.0.0.0 HOST=localhost",
        "aten.split.int x.net example.org nvidia.com/gpu a-b.tar.gz kimi-k3.example.json setup-1.local.py",
        "hostname: str hostname = socket.gethostname() vllm/v1/io.py:12 [x]:1 node: 3",
        "reviewed-by: nobody Author: unknown USER=root",
        "2f1d3c4b5a69788796a5b4c3d2e1f00112233445 3:12:14 [0] INFO",
        "https://example.org/work/item?page=2&sort=key&sig=2&code=200&token=end",
        "?v=9f2c1b7a40de5c3386b1f6a7720d9c4e15aa08b3&cache_key=" + "ab12" * 16 + " sha256=" + "ab12" * 16,
        "signature=batch_size_and_more_words2 Credential=none is_valid_token = torch.zeros",
        "specialized_path/work/kernel.py a/u/b.py /worker/ford /workspace/x /users.py",
        "kernel_cutlass_kernel_flash_attncuteflash_fwdFlashAttentionForwardSm90_object_at__tensorptrbf16",
        "_ZN7cutlass13device_kernelIN7cutlass4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective",
        "#diff-31e8159767361e4bc259b6d9883d9c0d5e5db780fcea4a52ead4ee3ee4a59a78R1860 mla_decodeB128Sm90H96",
        "eyJhbGciOiJub25lIn0 alone, id-token: write, token: specialized_path.kernels",
        "NODE_ENV=production NUM_NODES=2 NODE_RANK=0 USER: str SERVER: ok uid=1000 sizes 3,16(padded)",
        "-rw-r--r-- 1 root root 4096 x",
    ],
)
def test_what_names_nobody_is_left_alone(text: str) -> None:
    assert SCRUBBER.text(text) == text


@given(
    st.lists(st.sampled_from([*PLANTED.split(), "x", "/", ":", "<home>", "@", "10.1.2.3", "=="]), max_size=8)
)
def test_scrubbing_twice_changes_nothing(parts: list[str]) -> None:
    once = SCRUBBER.text("".join(parts))
    assert SCRUBBER.text(once) == once


@pytest.mark.parametrize(
    "part",
    [
        ":",
        "a:",
        "/home",
        "a@",
        "--a-",
        "sk-",
        "token:",
        "a-1.",
        "a.com",
        "A_",
        "--a-host",
        "://a@",
        "by: a",
        "a:1",
        "a@b-",
        "/home/a A",
        "0A-",
        "a.b@c.",
        "password=",
        "://a:b",
        "eyJaaaaaaaa.",
        "-----BEGIN A",
        "1.",
        "aa:",
        "a_0A",
        "?a=",
        "&sig=0a",
        "x-amz-signature=",
        "signedheaders=",
        "eyJaaaaaaaa",
        "/u/a",
        "/mnt",
        "),1(a",
        "A_HOST=a,",
        "PMI_a",
        "-rwxrwxrwx 1 ",
    ],
)
@pytest.mark.parametrize("end", ["", "z", " "])
def test_no_text_takes_long_whatever_it_repeats(part: str, end: str) -> None:
    begun = time.process_time()
    SCRUBBER.text(part * 4000 + end)
    assert time.process_time() - begun < 1


def test_a_version_that_looks_like_an_address_stays_one() -> None:
    record = environment().model_copy(update={"packages": {"nvidia-curand-cu12": "10.3.9.90"}})
    kept = SCRUBBER.record(record)
    assert isinstance(kept, EnvironmentEvidence) and kept.packages == record.packages


def test_a_name_that_the_repository_publishes_itself_is_a_word_like_others() -> None:
    assert Scrubber(names=NAMES, public='id = "zaphod"').text("zaphod.plan") == "zaphod.plan"


def test_an_address_that_the_repository_publishes_itself_stays() -> None:
    public = Scrubber(names=NAMES, public="tests/data/10.1.2.3.txt\ndev@example.org")
    assert (
        public.text("tests/data/10.1.2.3.txt of dev@example.org")
        == "tests/data/10.1.2.3.txt of dev@example.org"
    )


def test_a_token_is_replaced_even_where_the_repository_publishes_it() -> None:
    assert Scrubber(names=NAMES, public=TOKEN).text(TOKEN) == "<secret>"


def test_a_home_folder_is_replaced_even_where_the_name_in_it_is_a_public_word() -> None:
    assert Scrubber(names=NAMES, public="zaphod").text("/srv/people/zaphod/x") == "<home>/x"


def test_a_record_that_names_nobody_keeps_its_id() -> None:
    assert (
        SCRUBBER.record(environment()) is environment()
        or SCRUBBER.record(environment()).id == environment().id
    )


def test_two_keys_that_would_become_one_are_refused_and_not_merged() -> None:
    keys = {"mail ford@example.org": "1", "mail arthur@example.org": "2"}
    with pytest.raises(BundleError) as caught:
        SCRUBBER.record(environment().model_copy(update={"packages": keys}))
    assert caught.value.slug == "evidence-not-scrubbable"


def gap(reason: str) -> GapEvidence:
    return GapEvidence(tier=Tier.GPU, recorded_at="2026", what="tier gpu", broke=False, reason=reason)


def test_the_writer_refuses_a_record_that_was_not_scrubbed_and_writes_nothing(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b", scrubber=SCRUBBER)
    with pytest.raises(BundleError) as caught:
        store.add(gap("zaphod was here"))
    assert caught.value.slug == "bundle-names-machine"
    assert list_files(tmp_path / "b") == {}


def test_without_a_scrubber_the_writer_knows_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "magrathea.example")
    with pytest.raises(BundleError):
        EvidenceStore(tmp_path / "b").add(gap("on magrathea, at night"))


def test_a_raw_file_is_not_named_for_a_user(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        EvidenceStore(tmp_path / "b", scrubber=SCRUBBER).add_raw("zaphod.log", b"x")


def test_evidence_of_a_sealed_bundle_is_taken_over_as_it_is(tmp_path: Path) -> None:
    record = gap("as the repository of others publishes it: 10.11.12.13")
    store = EvidenceStore(tmp_path / "b", scrubber=TakenOver())
    assert store.add(record) == record.id


def test_what_a_process_wrote_by_itself_is_scrubbed_when_the_bundle_is_sealed(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    for record in evidence_undecided():
        store.add(record)
    store.add_raw("server.log", b"bound to 10.11.12.13\n\xff not UTF-8\n")
    seal(
        store.folder,
        manifest_text=MANIFEST_TEXT,
        policy_text=POLICY_TEXT,
        judgement=decide_example(MANIFEST_TEXT, POLICY_TEXT, CHANGE, store.records),
        render_report=plain_report,
    )
    assert (store.folder / "raw/server.log").read_bytes() == b"bound to <ip>\n\xff not UTF-8\n"


def test_a_change_that_was_not_scrubbed_is_not_sealed(tmp_path: Path) -> None:
    change = CHANGE.model_copy(update={"head_subject": "by ford@example.org"})
    with pytest.raises(BundleError) as caught:
        write_bundle(tmp_path / "b", evidence_undecided(), plain_report, change=change)
    assert (caught.value.slug, caught.value.where) == ("bundle-names-machine", "change.json")


def test_this_machine_is_known_by_user_host_home_and_secret_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "magrathea.example")
    names = collect_machine_names({"USER": "trillian", "HOME": "/h/trillian", "MY_API_KEY": "1234567890"})
    assert names.words["trillian"] == "user" and names.words["magrathea"] == "host"
    assert names.folders["/h/trillian"] == "home" and names.secrets["1234567890"] == "MY_API_KEY"


@pytest.mark.parametrize("name", ["WANDB_KEY", "MY_PASS", "GH_PAT", "KEY", "SIGNING_KEYS"])
def test_a_variable_whose_name_says_key_or_the_like_is_secret(name: str) -> None:
    assert collect_machine_names({name: "1234567890"}).secrets == {"1234567890": name}


@pytest.mark.parametrize("name", ["PATH", "MONKEY", "PWD", "COMPASS"])
def test_a_variable_whose_name_only_holds_such_letters_is_not(name: str) -> None:
    assert collect_machine_names({name: "1234567890"}).secrets == {}


def test_whoever_git_says_commits_here_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[user]\nname = Tricia McMillan\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    names = collect_machine_names({})
    assert Scrubber(names=names).text("Author: Tricia McMillan <x>") == "Author: <user> <x>"


def test_accounts_that_name_nobody_are_words() -> None:
    assert "root" not in collect_machine_names({"USER": "root", "HOME": "/root"}).words
    assert this_machine().text("the root cause") == "the root cause"


@pytest.mark.parametrize("line", ["# /srv/people/zaphod/data\n", "# correct-horse-battery\n"])
def test_a_manifest_that_names_a_folder_or_secret_of_the_machine_is_refused_before_the_run(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        begin(
            tmp_path,
            manifest_text=MANIFEST_TEXT + line,
            policy_text=POLICY_TEXT,
            change=CHANGE,
            scrubber=SCRUBBER,
        )
    assert caught.value.slug == "configuration-names-machine"
