"""The forms that give away names of people, machines and secrets wherever they stand, and what is written for each.

A form has to be told from what evidence is full of: dotted names of modules and files, versions, digests, ids of
requests, addresses of documentation. So a name is a machine's where a variable, an option, a scheme or a port says so,
where it ends as names inside a network do, or where at least three labels end as no module or file does.
"""

from __future__ import annotations

BEFORE = r"(?<![A-Za-z0-9])"
AFTER = r"(?![A-Za-z0-9])"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_KEY_BLOCK = r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.|\n)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_TOKEN = (
    r"hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|sk-(?:ant-[a-z]+[0-9]+|proj|svcacct|admin|or-v1)-(?=[\w-]*[0-9])[\w-]{32,}"
    r"|sk-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}"
    r"|pypi-AgE[\w-]{16,}|dckr_pat_[\w-]{16,}|nvapi-[\w-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|hooks\.slack\.com/services/[\w/]{12,}|eyJ[\w-]{8,}(?:\.[\w-]*){1,4}|k8s-aws-v1\.[\w-]{16,}"
    r"|(?:xai|pplx|tvly)-(?=[A-Za-z-]{0,60}[0-9])[A-Za-z0-9-]{20,}|LS0tLS1CRUdJTi[A-Za-z0-9+/]{16,}={0,2}"
)
_DRAWN = (
    r"(?<![\w./-])[a-z][a-z0-9]{1,7}_(?=[a-z0-9]{0,80}[A-Z])(?=[A-Z0-9]{0,80}[a-z])"
    r"(?=[A-Za-z]{0,80}[0-9]+[A-Za-z]{1,80}[0-9]+[A-Za-z]{1,80}[0-9])[A-Za-z0-9]{30,}(?![\w-])"
)
"""A token of a kind that nobody listed: a short prefix, then letters of both cases and digits mixed at length."""
_VALUE = r"[^\s\"',;<>{}()\[\]]{6,}"
_ASSIGNED = (
    r"(?i:(?:pass(?:word|wd|phrase)|secret(?:_?key)?|(?:api|access|account|storage|signing)[_-]?key"
    r"|client-key-data|(?:auth|access|refresh|bearer|session)[_-]?token)"
    rf"[\"']?\s*[:=]\s*[\"']?)(?P<assigned>{_VALUE})"
    rf"|(?<=[A-Z0-9]_)(?:TOKEN|KEY|SECRET|PASS|PAT)=[\"']?(?P<variable>{_VALUE})"
    rf"|(?<![\w-])(?i:pwd)=(?![/~])(?P<pwd>{_VALUE})"
    r"|(?<![\w-])(?i:token)[\"']?\s*[:=]\s*[\"']?(?P<token>(?=[\w-]{0,64}[0-9])(?=[\w-]{0,64}[A-Za-z])[\w-]{12,}"
    r"|[a-z0-9]{6}\.(?=[a-z]{0,16}[0-9])[a-z0-9]{16}(?!\w))"
    rf"|--(?:[a-z]{{1,16}}-){{0,3}}(?:api-key|token|password|passphrase|secret)[ =]+[\"']?(?P<option>(?!-){_VALUE})"
)
"""A value behind a name that says what it is. Of models' tokens this says nothing: they are short, or not assigned."""
_BEARER = (
    r"(?i:authorization[\"']?\s*[:=]\s*[\"']?)?\b(?:Bearer|Basic) (?P<bearer>[A-Za-z0-9+/_.=~-]{12,})"
    r"|(?i:authorization[\"']?\s*[:=]\s*[\"']?token )(?P<scheme>[^\s\"']{6,})"
)
_IN_A_QUERY = (
    r"(?i:x-(?:amz|goog|oss|cos)-(?:signature|credential|security-token)[\"']?\s*[:=]\s*[\"']?)(?P<signed>[^\s&#\"'<>,;]{6,})"
    r"|(?i:signedheaders=[^\s,]{1,200},\s*signature=)(?P<header>[0-9a-f]{32,})"
    r"|(?<=[?&;])(?i:(?:[\w.-]{0,24}[_-])?(?:sig|hmac|signature|credential|secret|token|password|auth)"
    r"|(?:api|access|account|function|subscription)?[_-]?key(?:id)?|code)="
    r"(?P<query>(?=[^\s&#;\"'<>]{0,400}[0-9])(?=[^\s&#;\"'<>]{0,400}[A-Za-z])[^\s&#;\"'<>]{16,})"
)
"""What lets whoever has an address use it; short values and other parameters are ordinary."""
_PERSON = r"[^\s/\\\"'<>:,;)\]]+(?:(?: [A-Z][\w.-]{0,31}){1,2}(?=[/\\]))?"
"""The name of a home folder; of words with spaces between them the next ones begin large and a separator follows."""
_ACCOUNT = r"(?!root\b)[A-Za-z_][\w.-]{2,}"
_MODE = r"(?<![\w-])[bcdlps-](?:[r-][w-][xsStT-]){3}[.+@]? +[0-9]+ +"
"""What `ls -l` writes before the owner."""
_MOUNT = r"/(?:mnt|nfs|gpfs|lustre|beegfs|afs|ceph|weka|vast|global|export|cluster|storage|net|p)[\w.-]{0,32}"
_SET_TO = r"(?:=[\"']?|[\"']\s*:\s*[\"'])"
_LOGIN_IN_URL = r"(?<=://)(?P<login>[^\s/@:]*:[^\s/@]+)(?=@)"
_EMAIL = r"(?<![\w.+-])(?!git@)[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}" + AFTER
_NUMBERED_LOGIN = (
    r"(?<![\w.+-])[a-z_][\w.-]{0,31}@[a-z][a-z0-9]{0,31}(?:-[a-z0-9]{1,32})*-[a-z]{0,8}[0-9]{1,6}(?![\w.-])"
)
_SIGNED_BY = r"(?i:\b(?:author|committer|[a-z]{2,16}-by): )(?P<person>[^<>\n]{2,80}?)(?= ?<)"
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}"
_HOST = rf"(?!(?:localhost|host|hostname|server)\b)[A-Za-z][\w-]{{0,62}}(?:\.{_LABEL}){{0,8}}"
_ALONE = r"(?![\w/-]|\.\w)"
_HOSTS = rf"{_HOST}(?:\[[0-9,:-]+\])?(?:@[0-9()]+)?"
_VALUE_OF = r"[\"']?\s*[:=]\s*[\"']?"
_MACHINE = (
    rf"\b(?:tcp|udp|ssh|nfs|ray|rediss?|wss?|grpc|amqp|mongodb|mysql|postgres(?:ql)?)://(?P<peer>{_HOST})",
    rf"(?<=://)(?:[\w.~-]{{1,64}}@)?(?P<port>{_HOST})(?=:[0-9])",
    rf"(?<=://)[A-Za-z][a-z-]{{1,40}}[0-9]{{1,5}}(?:\.{_LABEL}){{2,8}}(?![\w-]|\.\w)",
    rf"--(?:[a-z]{{1,16}}-){{0,3}}(?:host|hostname|addr|address)[ =]+[\"']?(?P<option>{_HOST})",
    # Of several names the others follow a comma, or a space and with a number in them.
    r"(?<![A-Za-z0-9])(?:[A-Z0-9]{1,16}_){0,4}(?:HOST(?:NAME|LIST|S)?|NODE(?:NAME|LIST)|ADDR|SERVER)"
    rf"{_SET_TO}(?P<variable>{_HOSTS}(?:[,;]{_HOSTS}|(?: [0-9]+)? (?=[A-Za-z-]{{1,40}}[0-9]){_HOSTS})*)",
    r"(?<![A-Za-z0-9])(?:OMPI|PRTE|PRRTE|PMIX?|MV2|I_MPI|HYDRA|SLURMD?|PBS|LSB|PALS|FLUX)(?:_[A-Za-z0-9]{1,24}){0,6}"
    r"_(?i:host(?:name|list|s)?|node(?:name|list|s|_?regex|_?list)?|server|cluster(?:_name)?)"
    rf"{_VALUE_OF}(?P<job>{_HOSTS}(?:[,;]{_HOSTS})*)",
    rf"(?i:[\"'](?:host|node|machine|computer)_?name[\"']\s*:\s*[\"'])(?P<field>{_HOST})",
    rf"(?i:\b(?:host|node)[ _]?name\s*[:=]\s*)(?P<said>(?=[A-Za-z-]{{1,40}}[0-9]){_HOST})",
    rf"(?m:^)(?P<nccl>{_HOST})(?=:[0-9]+:[0-9]+ \[[0-9]+\] NCCL )",
    rf"(?<=\[)(?=[\w-]{{0,62}}[.0-9-]){_HOST}(?=\]:[0-9])",
    rf"(?:(?<![\w.@/-])|(?<=://))(?=[A-Za-z0-9]{{1,62}}?(?:(?<=[0-9])|-))(?:{_LABEL}\.){{1,8}}"
    rf"(?:local|internal|lan|corp|intranet|localdomain|home\.arpa){_ALONE}",
    rf"(?<![\w.@/-])(?:{_LABEL}\.){{1,8}}(?:svc|cluster\.local){_ALONE}",
    rf"(?<![\w.@/-])(?!www\.)(?:{_LABEL}\.){{2,8}}"
    rf"(?:com|org|net|edu|gov|mil|cloud|ai|de|uk|fr|jp|cn|kr|ch|nl|se|eu|au|ca|br|tw|sg|hk){_ALONE}",
    r"(?<![\w-])(?:i-[0-9a-f]{17}|(?:DESKTOP|LAPTOP)-[A-Z0-9]{7})(?![\w-])",
)
"""Names of hosts other than this one; `nccl` is how that library begins a line of its log."""
PATTERNS: tuple[tuple[str, str], ...] = (
    ("secret", _KEY_BLOCK),
    ("secret", _LOGIN_IN_URL),
    ("secret", rf"{BEFORE}(?:{_TOKEN})"),
    ("secret", _DRAWN),
    ("secret", _IN_A_QUERY),
    ("secret", _ASSIGNED),
    ("secret", _BEARER),
    ("email", _EMAIL),
    ("home", rf"(?<![\w.-])(?:/[\w.-]+){{0,6}}?/(?:(?:home|scratch)[0-9]{{0,3}}|[Uu]sers)/{_PERSON}"),
    (
        "home",
        rf"(?:(?<![\w./-])|(?<=file://))(?:{_MOUNT})?/(?:u|work|people|staff|students)[0-9]{{0,3}}/{_PERSON}",
    ),
    ("home", rf"(?i:(?<![A-Za-z0-9])[a-z]:(?:\\{{1,2}}|/)Users(?:\\{{1,2}}|/)){_PERSON}"),
    ("home", r"(?i:%2F(?:home|Users)%2F)[^\s/%&\"'<>]+"),
    ("mac", r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"),
    ("mac", r"(?<![\w-])(?=[0-9-]{0,16}[A-Fa-f])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])"),
    ("ip", rf"(?<![\w.])(?<!==)(?:{_OCTET}\.){{3}}{_OCTET}(?![\w.]?[0-9])"),
    ("ip", rf"{BEFORE}ip(?:-{_OCTET}){{4}}{AFTER}"),
    ("ip", r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{3,40}+(?![\w:])"),
    ("gpu", rf"\b(?:GPU|MIG)-{_UUID}\b"),
    ("uuid", rf"(?<![\w-]){_UUID}(?![\w-])"),
    ("serial", r"(?i:\bserial(?: number)?\s*[:=]\s*)(?P<serial>(?=[A-Za-z]{0,32}[0-9])[A-Za-z0-9]{8,})"),
    ("user>@<host", _NUMBERED_LOGIN),
    ("user", _SIGNED_BY),
    (
        "user",
        r"(?<![A-Za-z0-9])(?:[A-Z0-9]{1,16}_){0,4}(?:USER(?:NAME)?|LOGNAME|ACCOUNT)(?:_NAME)?"
        rf"{_SET_TO}(?P<user>{_ACCOUNT})",
    ),
    ("user", rf"(?:\b(?:e?[ug]id|groups)=|(?<=\)),)[0-9]+\((?P<account>{_ACCOUNT})\)"),
    ("user", rf"{_MODE}(?P<owner>{_ACCOUNT})(?= )"),
    ("user", rf"{_MODE}\S+ +(?P<group>{_ACCOUNT})(?= )"),
    *(("machine", pattern) for pattern in _MACHINE),
)
PUBLISHED = frozenset({"<email>", "<ip>", "<mac>", "<gpu>", "<uuid>", "<machine>"})
"""Of what gives itself away by its form, all that may be published: not secrets, and not where somebody lives."""
