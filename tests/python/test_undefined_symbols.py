"""A symbol of the compiled module that is defined nowhere fails the build, not the first import."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CMAKE = (Path(__file__).parents[2] / "core" / "CMakeLists.txt").read_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(("body", "status"), [("return 1;", 0), ("return nowhere();", 1)])
def test_what_the_build_runs_once_the_module_is_linked(tmp_path, body, status):
    [(options, code)] = re.findall(
        r"add_custom_command\(TARGET _core POST_BUILD VERBATIM\s+COMMAND \$\{Python_EXECUTABLE\} "
        r'(\S+ \S+) -c "(.*)"\s+\$<TARGET_FILE:_core>',
        CMAKE,
    )
    module = tmp_path / "module.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", module],
        check=True,
        text=True,
        input=f"int nowhere(void); int somewhere(void) {{ {body} }}",
    )
    done = subprocess.run(
        [sys.executable, *options.split(), "-c", code, module],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == status
    assert status == 0 or "undefined symbol: nowhere" in done.stderr
