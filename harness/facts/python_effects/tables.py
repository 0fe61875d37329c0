"""Functions of Python, PyTorch, NumPy and vLLM that reach beyond their caller, by dotted name.

Read from the documentation of Python 3.11, PyTorch 2.13 and NumPy 2.3, and from the signatures of vLLM 0.32.
"""

from __future__ import annotations

import ast
import re

from harness.model.effects import EffectKind


def _names(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in names.split())


_TORCH_SETTINGS = (
    *_names(
        "torch",
        "set_default_dtype set_default_device set_default_tensor_type set_num_threads set_num_interop_threads"
        " set_float32_matmul_precision use_deterministic_algorithms set_deterministic_debug_mode"
        " set_grad_enabled set_flush_denormal set_printoptions set_anomaly_enabled set_warn_always"
        " set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled set_autocast_gpu_dtype"
        " set_autocast_cpu_dtype manual_seed seed set_rng_state autograd.set_detect_anomaly"
        " autograd.set_grad_enabled random.manual_seed random.seed random.set_rng_state"
        " compiler.set_stance jit.set_fusion_strategy multiprocessing.set_start_method"
        " multiprocessing.set_sharing_strategy serialization.add_safe_globals"
        " serialization.register_package utils.swap_tensors hub.set_dir",
    ),
    *_names(
        "torch.cuda",
        "set_device set_stream manual_seed manual_seed_all seed seed_all set_rng_state set_rng_state_all"
        " set_per_process_memory_fraction memory.set_per_process_memory_fraction set_sync_debug_mode"
        " memory.change_current_allocator memory._set_allocator_settings change_current_allocator"
        " tunable.enable tunable.set_filename",
    ),
)
_TORCH_SETTING_PATTERNS = (
    r"torch\.backends(\.\w+)*\.(enable|set|allow|prefer)_\w+",
    r"torch\._C\._(set|jit_set|jit_override)_\w+",
    r"torch\.nn\.modules\.module\.register_module_\w+",
    r"torch\._dynamo\.(reset|eval_frame\.\w+)",
    r"torch\.utils\.rename_privateuse1_backend",
    r"torch\._\w+\.config\.load_config",
    r"(cuda|cupy|pynvml|hip|torch\._C\._cudart)(\.\w+)*\.(cuda|cu|nvml|hip)(Device|DevicePrimaryCtx|Ctx|System)?(Set|Reset)\w+",
    r"torch\.utils\._python_dispatch\._push_mode|torch\.overrides\._push_mode",
)
_OTHER_SETTINGS = (
    *_names("numpy", "seterr seterrcall set_printoptions random.seed random.set_state"),
    *_names("random", "seed setstate"),
    *_names("logging", "disable basicConfig setLoggerClass captureWarnings addLevelName"),
    *_names("logging", "setLogRecordFactory config.dictConfig config.fileConfig"),
    *_names("warnings", "filterwarnings simplefilter resetwarnings"),
    *_names("gc", "disable enable freeze set_threshold set_debug"),
    *_names("sys", "setrecursionlimit setswitchinterval settrace setprofile set_asyncgen_hooks addaudithook"),
    *_names("threading", "settrace setprofile settrace_all_threads setprofile_all_threads stack_size"),
    *_names("os", "umask chdir fchdir chroot nice sched_setaffinity setpriority setuid setgid"),
    *_names("multiprocessing", "set_start_method set_executable set_forkserver_preload"),
    *_names("asyncio", "set_event_loop_policy set_event_loop"),
    *_names("locale", "setlocale"),
    *_names("resource", "setrlimit prlimit"),
    *_names("decimal", "setcontext"),
    *_names("socket", "setdefaulttimeout"),
    *_names("faulthandler", "enable disable register dump_traceback_later"),
    *_names("tracemalloc", "start"),
    *_names("copyreg", "pickle constructor add_extension"),
    *_names("codecs", "register register_error"),
    "time.tzset",
)
_PROCESS = (
    *_names("os", "system popen fork forkpty kill killpg abort _exit posix_spawn posix_spawnp startfile"),
    *_names("os", "execl execle execlp execlpe execv execve execvp execvpe"),
    *_names("os", "spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe"),
    *_names("subprocess", "run call check_call check_output getoutput getstatusoutput Popen"),
    *_names("asyncio", "create_subprocess_exec create_subprocess_shell"),
    *_names("asyncio.subprocess", "create_subprocess_exec create_subprocess_shell"),
    *_names("multiprocessing", "Process Pool Manager"),
    *_names("torch.multiprocessing", "Process Pool spawn start_processes"),
    "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.process.ProcessPoolExecutor",
    "pty.spawn",
    "ray.init",
    "_posixsubprocess.fork_exec",
)
_NETWORK_PATTERNS = (
    r"socket\.(socket|create_connection|create_server|socketpair|getaddrinfo|gethostbyname)",
    r"(requests|httpx|httpx2|aiohttp|urllib3|websockets|websocket|paramiko|pycurl|grpc|boto3)\.\w[\w.]*",
    r"urllib\.request\.\w+",
    r"http\.(client|server)\.\w+",
    r"(ftplib|smtplib|telnetlib|poplib|imaplib|xmlrpc\.client)\.\w+",
    r"huggingface_hub\.(\w+\.)*(hf_hub_download|snapshot_download|upload_\w+|HfApi|HfFileSystem|login|hf_hub_url)",
    r"modelscope\.(\w+\.)*\w*download\w*",
    r"torch\.hub\.(load|download_url_to_file|load_state_dict_from_url)",
    r"asyncio\.(open_connection|start_server)",
    r"zmq\.(\w+\.)*(Context|SyncContext|Socket)(\.instance)?",
    r"ssl\.(get_server_certificate|create_connection)",
    r"torch\.distributed\.((\w+\.)*(init_process_group|TCPStore)|(rendezvous\.)?rendezvous)",
    r"(wget\.download|gdown\.\w+|fsspec\.open|s3fs\.\w+)",
)
_MODULES = (
    *_names("importlib", "reload util.module_from_spec"),
    *_names("sys", "path.append path.insert path.extend meta_path.append meta_path.insert path_hooks.append"),
    *_names("site", "addsitedir addpackage"),
    *_names("pkgutil", "extend_path"),
)
_PATCHERS = (
    *_names("unittest.mock", "patch patch.object patch.dict patch.multiple"),
    *_names("mock", "patch patch.object patch.dict patch.multiple"),
    *_names("wrapt", "wrap_function_wrapper patch_function_wrapper wrap_object wrap_object_attribute"),
    *_names("pytest", "MonkeyPatch"),
    "gorilla.apply",
    "forbiddenfruit.curse",
    "aenum.extend_enum",
)
_DYNAMIC = (
    *_names("pickle", "load loads Unpickler"),
    *_names("cloudpickle", "load loads"),
    *_names("dill", "load loads"),
    *_names("marshal", "load loads"),
    *_names("joblib", "load"),
    *_names("runpy", "run_path run_module"),
    *_names("importlib", "util.spec_from_file_location machinery.SourceFileLoader util.spec_from_loader"),
    *_names("types", "FunctionType CodeType"),
    *_names("gc", "get_objects get_referrers get_referents"),
    "code.interact",
)
_UNPICKLES_WHEN = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}
"""Loaders that run what a file says unless an argument has a value, which it has where it is not given."""
_NATIVE_PATTERNS = (
    r"ctypes\.(CDLL|PyDLL|WinDLL|cdll(\.\w+)*|pydll(\.\w+)*|pythonapi(\.\w+)*|memmove|memset|util\.find_library)",
    r"torch\.ops\.load_library|torch\.classes\.load_library",
    r"torch\.utils\.cpp_extension\.(load|load_inline|CUDAExtension|CppExtension)",
    r"(cffi\.FFI|tvm_ffi\.(cpp\.)?(load|load_inline|load_module|build|build_inline)|cppyy\.\w+)",
    r"torch\.cuda\._compile_kernel",
    r"(torch|vllm)\.(\w+\.)*load_inline",
)
_EXIT = ("atexit.register", "atexit.unregister", "atexit._clear", "threading._register_atexit")
_SIGNAL = _names(
    "signal", "signal setitimer alarm siginterrupt set_wakeup_fd sigwait pthread_sigmask raise_signal"
)
_ENVIRONMENT = (
    *_names(
        "os", "putenv unsetenv environ.update environ.setdefault environ.pop environ.clear environ.popitem"
    ),
    *_names("os", "environ.__setitem__ environ.__delitem__ environb.update environb.setdefault"),
    "dotenv.load_dotenv",
)
_FILES = (
    *_names(
        "os", "makedirs mkdir remove unlink rename replace rmdir symlink link chmod truncate mknod write"
    ),
    *_names("shutil", "rmtree copy copy2 copyfile copytree move"),
    *_names("tempfile", "mkdtemp mkstemp NamedTemporaryFile TemporaryDirectory"),
    *_names("torch", "save"),
    *_names("multiprocessing.shared_memory", "SharedMemory ShareableList"),
    *_names("mmap", "mmap"),
    *_names("numpy", "save savez savetxt"),
)
_DEVICE = (
    *_names("torch.cuda", "init current_device get_device_capability get_device_properties get_device_name"),
    *_names("torch.cuda", "Stream Event CUDAGraph synchronize mem_get_info current_stream empty_cache"),
    *_names("threading", "Thread Timer"),
    *_names("_thread", "start_new_thread start_new"),
    *_names("multiprocessing", "pool.ThreadPool dummy.Pool dummy.Process"),
    "concurrent.futures.ThreadPoolExecutor",
)
_AT_IMPORT = ("sys.exit", "time.sleep", "signal.pause", "select.select", "select.poll")
AT_IMPORT_ONLY = frozenset({EffectKind.FILES, EffectKind.DEVICE, EffectKind.AT_IMPORT})
"""What matters only while a module is imported: anybody may write a file, use the GPU or wait when called."""

_EXACT = {
    name: kind
    for kind, names in (
        (EffectKind.GLOBAL_SETTING, (*_TORCH_SETTINGS, *_OTHER_SETTINGS)),
        (EffectKind.PROCESS, _PROCESS),
        (EffectKind.MODULES, _MODULES),
        (EffectKind.ATTRIBUTE, _PATCHERS),
        (EffectKind.DYNAMIC_CODE, _DYNAMIC),
        (EffectKind.EXIT_HOOK, _EXIT),
        (EffectKind.SIGNAL, _SIGNAL),
        (EffectKind.ENVIRONMENT, _ENVIRONMENT),
        (EffectKind.FILES, _FILES),
        (EffectKind.DEVICE, _DEVICE),
        (EffectKind.AT_IMPORT, _AT_IMPORT),
    )
    for name in names
}
_PATTERNS = [
    (re.compile("|".join(f"(?:{p})" for p in patterns)), kind)
    for kind, patterns in (
        (EffectKind.GLOBAL_SETTING, _TORCH_SETTING_PATTERNS),
        (EffectKind.NETWORK, _NETWORK_PATTERNS),
        (EffectKind.NATIVE_CODE, _NATIVE_PATTERNS),
    )
]
_HARMLESS = re.compile(
    r".*\b(Limits|Timeout|Headers|URL|Request|Response|\w*Error|\w*Exception|exceptions(\.\w+)*|Timeout|codes(\.\w+)*)|http\.HTTPStatus.*|socket\.AF_\w+"
)
_SETTING_ATTRIBUTES = re.compile(
    r"torch\.(backends|_dynamo\.config|_inductor\.config|_functorch\.config|_logging)\.[\w.…]+|(sys\.(std\w+|\w*hook)|sys\."
    r"(dont_write_bytecode|flags|tracebacklimit))|warnings\.\w+|logging\.root\.\w+|random\._inst|triton\.knobs\.[\w.]+"
)
_ALIASES = (
    (re.compile(r"np\."), "numpy."),
    (re.compile(r"(posix|nt)\.(?!path\b|os\b)"), "os."),
    (re.compile(r"_socket\."), "socket."),
    (re.compile(r"concurrent\.futures\.thread\.ThreadPoolExecutor"), "concurrent.futures.ThreadPoolExecutor"),
    (re.compile(r"multiprocessing\.(context\.\w+|process|pool)\.(?=Process|Pool)"), "multiprocessing."),
    (re.compile(r"(os|posix)\.(path\.)?os\."), "os."),
)


def called_kind(name: str) -> EffectKind | None:
    """What calling the function of this dotted name does beyond its caller; None where nothing is known."""
    for pattern, replacement in _ALIASES:
        name = pattern.sub(replacement, name, count=1) if pattern.match(name) else name
    if name in _EXACT:
        return _EXACT[name]
    if _HARMLESS.fullmatch(name):
        return None
    return next((kind for pattern, kind in _PATTERNS if pattern.fullmatch(name)), None)


def unpickles(name: str, call: ast.Call) -> bool:
    """Whether a call of a loader may run what the file says."""
    argument, is_safe = _UNPICKLES_WHEN.get(name, ("", True))
    given = [k.value for k in call.keywords if k.arg in (argument, None)] if argument else []
    return any(not (isinstance(value, ast.Constant) and value.value is is_safe) for value in given)


def attribute_kind(target: str) -> EffectKind:
    """What setting the attribute of this dotted name changes."""
    if _SETTING_ATTRIBUTES.fullmatch(target):
        return EffectKind.GLOBAL_SETTING
    if target in ("sys.path", "sys.meta_path", "sys.path_hooks", "sys.modules", "sys.path_importer_cache"):
        return EffectKind.MODULES
    if target in ("os.environ", "os.environb"):
        return EffectKind.ENVIRONMENT
    return EffectKind.ATTRIBUTE


def container_kind(container: str) -> EffectKind:
    """What changing the container of this dotted name changes."""
    if container in ("os.environ", "os.environb", "posix.environ"):
        return EffectKind.ENVIRONMENT
    if container.startswith("sys."):
        return EffectKind.MODULES
    if container.startswith(("gc.", "warnings.", "logging.")):
        return EffectKind.GLOBAL_SETTING
    return EffectKind.CONTAINER
