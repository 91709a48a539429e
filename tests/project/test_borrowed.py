"""Private parts of other libraries are still as the files of `borrowed/` use them.

Nothing of the package is imported at the top: where a part is gone, the package cannot be, and
these tests say which part, and what needs it.
"""

import ast
import inspect
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.foreign_imports import foreign_imports

PACKAGE = "pymc_tempering"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE
HOMES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("borrowed/*.py"))
SOURCES = {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in sorted(ROOT.rglob("*.py"))}

# Name in one of these files: what stands behind it. In parentheses are the arguments: those that
# the library hands to our method or we by place, in order, and with "=" those that we name.
PARTS = {
    "OpenDispatcher": """
        numba.core.registry.CPUDispatcher(py_func, targetoptions=)
        numba.core.registry.CPUDispatcher._compile_for_args(self, args, kws)
        numba.core.registry.CPUDispatcher._reduce_states(self)
        numba.core.registry.CPUDispatcher._rebuild
        numba.core.registry.CPUDispatcher.get_call_template(self, args, kws)
        numba.core.registry.CPUDispatcher.get_compile_result(self, sig)
        numba.core.registry.CPUDispatcher.get_function_type(self)
        numba.core.registry.CPUDispatcher.compile(self, sig)
        numba.core.registry.CPUDispatcher.get_overload(self, sig)
        numba.core.registry.CPUDispatcher.is_compiling
        numba.core.registry.CPUDispatcher.disable_compile(self)""",
    "NOT_COUNTED": "numba.core.cpu.CPUTargetOptions._nrt",
    "NullCache": "numba.core.caching.NullCache",
    "OpenCache": """
        numba.core.caching.FunctionCache(py_func)
        numba.core.caching.FunctionCache._index_key(self, sig, codegen)
        numba.core.caching.FunctionCache.save_overload(self, sig, data)
        numba.core.caching.FunctionCache.disable(self)""",
    "OpenCacheFile": """
        numba.core.caching.IndexDataCacheFile(cache_path, filename_base, source_stamp)
        numba.core.caching.IndexDataCacheFile._load_index(self)
        numba.core.caching.IndexDataCacheFile._save_index(self, overloads)
        numba.core.caching.IndexDataCacheFile._load_data(self, name)
        numba.core.caching.IndexDataCacheFile._save_data(self, name, data)
        numba.core.caching.IndexDataCacheFile._data_path(self, name)
        numba.core.caching.IndexDataCacheFile._dump(self, obj)
        numba.core.caching.IndexDataCacheFile._open_for_write(self, filepath)
        numba.core.caching.IndexDataCacheFile.load(self, key)
        numba.core.caching.IndexDataCacheFile.save(self, key, data)""",
    "files_being_read": "numba.core.caching.IndexDataCacheFile._load_index(self)",
    "index_path_of": "numba.core.caching.IndexDataCacheFile.flush(self)",
    "address_of": "",
    "address_for_c": "",
    "BLAS": "",
    "cgutils": """
        numba.core.cgutils.get_or_insert_function(module, fnty, name)
        numba.core.cgutils.alloca_once_value(builder, value)
        numba.core.cgutils.unpack_tuple(builder, tup)""",
    "global_compiler_lock": """
        numba.core.compiler_lock.global_compiler_lock.__enter__
        numba.core.compiler_lock.global_compiler_lock.__exit__""",
    "install_listener": "numba.core.event.install_listener(kind, listener)",
    "Listener": """
        numba.core.event.Listener.on_start(self, event)
        numba.core.event.Listener.on_end(self, event)""",
    "Event": "numba.core.event.Event.data",
    "cpu_target": """
        numba.core.registry.cpu_target.target_context.codegen()
        numba.core.registry.cpu_target.target_context.get_value_type(ty)
        numba.core.registry.cpu_target.target_context.get_python_api(builder)
        numba.core.registry.cpu_target.target_context.call_conv.get_function_type(restype, argtypes)
        numba.core.registry.cpu_target.target_context.call_conv.call_function(
            builder, callee, resty, argtys, args)""",
    "is_dispatcher": "numba.core.registry.CPUDispatcher",
    "is_intrinsic": "numba.core.extending._Intrinsic",
    "returned_view": "numba.core.imputils.impl_ret_borrowed(ctx, builder, retty, ret)",
    "struct_of": """
        numba.core.cgutils.create_struct_proxy(fe_type)""",
    "choose_chains": "pymc.backends.base._choose_chains(traces, tune)",
    "SlicedTrace": "pymc.backends.base.IBaseTrace._slice(self, idx)",
    "set_report": "",
    "AnyMixtureRV": "pymc.distributions.mixture._BaseMixtureRV",
    "HurdleRV": "pymc.distributions.mixture._HurdleRV",
    "print_name_of": "pymc.distributions.mixture._HurdleRV._print_name",
    "default_transform": "pymc.distributions.transforms._default_transform(op, rv)",
    "log_density_of_op": "pymc.logprob.abstract._logprob.dispatch",
    "OpenBars": """
        pymc.progress_bar.ProgressBarManager(n_bars, progressbar, progressbar_theme)
        pymc.progress_bar.ProgressBarManager._create_backend(
            self, total, progress_columns, progress_stats)""",
    "table_of": "",
    "BlockedStepWithBars": """
        pymc.step_methods.compound.BlockedStep._state_class
        pymc.step_methods.compound.BlockedStep._progressbar_config(n_chains)
        pymc.step_methods.compound.BlockedStep._make_progressbar_update_functions()""",
    "compile_numba_function_src": """
        pytensor.link.numba.cache.compile_numba_function_src(
            src, function_name, global_env=, cache_key=)""",
    "numba_funcify_and_cache_key": """
        pytensor.link.numba.dispatch.basic.numba_funcify_and_cache_key(op, node=)
        pytensor.link.numba.dispatch.basic.numba_funcify_and_cache_key.dispatch""",
    "keep_with_pytensor": "pytensor.link.numba.cache.CACHED_SRC_FUNCTIONS.__setitem__",
    "key_of_constant": "pytensor.link.numba.dispatch.basic.cache_key_for_constant(data)",
    "numba_typify": "pytensor.link.numba.dispatch.basic.numba_typify(data)",
    "numba_njit": "pytensor.link.numba.dispatch.basic.numba_njit",
    "register_funcify_and_cache_key": """
        pytensor.link.numba.dispatch.basic.register_funcify_and_cache_key(op_type)""",
    "NumbaLinker": "pytensor.link.numba.linker.NumbaLinker",
    "infer_shape": """
        pytensor.tensor.random.op.RandomVariable._infer_shape(self, size, dist_params)""",
    "client_behind": "",
    "OpenLibrary": """
        numba.core.codegen.JITCodeLibrary(codegen, name)
        numba.core.codegen.JITCodeLibrary._optimize_functions(self, ll_module)
        numba.core.codegen.JITCodeLibrary._optimize_final_module(self)
        numba.core.codegen.JITCodeLibrary._finalize_final_module(self)
        numba.core.codegen.JITCodeLibrary._unserialize(codegen, state)
        numba.core.codegen.JITCodeLibrary.add_llvm_module(self, ll_module)
        numba.core.codegen.JITCodeLibrary.add_linking_library(self, library)
        numba.core.codegen.JITCodeLibrary.get_pointer_to_function(self, name)
        numba.core.codegen.JITCodeLibrary.finalize(self)
        numba.core.codegen.JITCodeLibrary.serialize_using_object_code(self)
        numba.core.codegen.JITCodeLibrary.has_dynamic_globals
        numba.core.codegen.JITCodeLibrary.codegen
        numba.core.codegen.JITCPUCodegen.set_env(self, env_name, env)
        numba.core.codegen.RuntimeLinker.PREFIX""",
    "linkable": "numba.core.codegen.JITCodeLibrary._get_module_for_linking(self)",
    "libraries_of": """
        numba.core.codegen.JITCPUCodegen._library_class
        numba.core.codegen.JITCPUCodegen.create_library(self, name)""",
}  # fmt: skip


def one_more(x):
    """Give numbers something to be compiled from."""
    return x + 1


def compiled():
    import numba

    return numba.njit("int64(int64)")(one_more)


def found_by_compiling():
    return next(iter(compiled().overloads.values()))


def bars():
    from pymc.progress_bar import ProgressBarManager

    class Bars(ProgressBarManager):
        def update(self):
            """Show nothing."""

    return Bars(1, True)


def dask_executor():
    module = pytest.importorskip("distributed.cfexecutor")
    return module.ClientExecutor(SimpleNamespace())


# Name in one of these files: what to make, and the attributes of it that are used.
MADE = {
    "OpenDispatcher": (compiled, "_can_compile _cache overloads py_func"),
    "OpenCache": (
        lambda: import_module("numba.core.caching").FunctionCache(one_more),
        "_impl.filename_base _impl.locator.get_source_stamp _cache_path _cache_file",
    ),
    "OpenCacheFile": (
        lambda: import_module("numba.core.caching").IndexDataCacheFile("a", "b", "c"),
        "_index_name _source_stamp _index_path",
    ),
    "address_of": (found_by_compiling, "library.get_pointer_to_function fndesc.llvm_func_name"),
    "address_for_c": (found_by_compiling, "fndesc.llvm_cfunc_wrapper_name"),
    "BLAS": (
        lambda: SimpleNamespace(**import_module("numba._helperlib").c_helpers),
        "xxdot xxgemv xxgemm",
    ),
    "set_report": (
        lambda: import_module("pymc.backends.report").SamplerReport(),
        "_n_tune _n_draws _t_sampling",
    ),
    "OpenBars": (bars, "_show_progress combined_progress full_stats"),
    "table_of": (lambda: bars()._create_backend(1, [], {}), "_progress.columns"),
    "client_behind": (dask_executor, "_client"),
    "OpenLibrary": (
        lambda: found_by_compiling().library,
        "_finalized _final_module _linking_libraries _reload_init _codegen.set_env "
        "_codegen._engine.is_symbol_defined",
    ),
}


def parts_of(text):
    """`(dotted name, arguments or None)` of each entry of a text of the table."""
    for path, given in re.findall(r"([\w.]+)(\([^)]*\))?", text):
        names = [name.strip() for name in given[1:-1].split(",") if name.strip()]
        yield path, names if given else None


def resolve(dotted):
    """Return what a dotted name stands for: a module, or something in one."""
    names = dotted.split(".")
    for n in range(len(names), 0, -1):
        try:
            value = import_module(".".join(names[:n]))
        except ModuleNotFoundError as error:
            if not ".".join(names[:n]).startswith(str(error.name)):
                raise
            continue
        for name in names[n:]:
            value = getattr(value, name)
        return value
    raise AttributeError(dotted)


def fault_of(dotted, arguments=None):
    """Say what is wrong with a part of a library, or None."""
    try:
        part = resolve(dotted)
    except AttributeError:
        return "is gone"
    if arguments is None:
        return None
    found = inspect.signature(part).parameters
    wanted = [name for name in arguments if not name.endswith("=")]
    named = [name[:-1] for name in arguments if name.endswith("=")]
    further = [p for p in list(found.values())[len(wanted) :] if p.kind not in (2, 3, 4)]
    asks = [p.name for p in further if p.default is p.empty and p.name not in named]
    if list(found)[: len(wanted)] != wanted or set(named) - set(found) or asks:
        return f"takes {', '.join(found) or 'nothing'} and not {', '.join(arguments) or 'nothing'}"
    return None


def users_of(alias):
    """Files of the package that use a name of these files."""
    use = re.compile(rf"^from {PACKAGE}\.borrowed\.\w+ import [^)]*?\b{alias}\b", re.M)
    return [name for name, text in SOURCES.items() if name not in HOMES and use.search(text)]


def released():
    """Names and versions of the libraries."""
    return ", ".join(f"{name} {version(name)}" for name in ("numba", "pymc", "pytensor"))


@pytest.mark.parametrize("alias", PARTS)
def test_a_borrowed_part_is_as_it_was(alias):
    """Runs over each entry; a fault names the part, the version, and the files that need it."""
    for dotted, arguments in parts_of(PARTS[alias]):
        fault = fault_of(dotted, arguments)
        assert not fault, f"{dotted} {fault} in {released()}. {alias}: {users_of(alias)}"


@pytest.mark.parametrize("alias", MADE)
def test_a_borrowed_object_has_its_attributes(alias):
    make, attributes = MADE[alias]
    made = make()
    for attribute in attributes.split():
        value = made
        for name in attribute.split("."):
            lost = f"{attribute} is gone in {released()}. {alias}: {users_of(alias)}"
            assert hasattr(value, name), lost
            value = getattr(value, name)


def test_the_tables_and_the_module_name_the_same():
    names = [
        name
        for home in HOMES
        for n in ast.parse(SOURCES[home]).body
        if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
        for name in ast.literal_eval(n.value)
    ]
    assert sorted(names) == sorted(PARTS)
    assert all(PARTS[alias] or alias in MADE for alias in PARTS)
    assert all(users_of(alias) for alias in PARTS)


def test_every_name_from_elsewhere_is_there():
    """No private one either; but a library that moves a name says so here, and to whom."""
    lost = [
        f"{name} is gone in {released()}: {file}"
        for file, text in SOURCES.items()
        for name in foreign_imports(text)
        if fault_of(name)
    ]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize(
    ("dotted", "arguments", "fault"),
    [
        ("pymc.backends.base._choose_many", None, "is gone"),
        ("pymc.backends.nowhere.choose", None, "is gone"),
        ("pymc.backends.base._choose_chains", ["traces"], "takes traces, tune and not traces"),
        ("pymc.backends.base._choose_chains", ["tune", "traces"], "takes traces, tune and not"),
        ("numba.core.cgutils.alloca_once_value", ["builder", "value", "zeros="], "takes builder"),
    ],
)
def test_a_planted_fault_is_named(dotted, arguments, fault):
    assert fault in fault_of(dotted, arguments)
