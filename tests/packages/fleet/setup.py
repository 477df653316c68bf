"""Builds the extension through ninja where it is there, as PyTorch's extensions are built,
and else one file after another, as setuptools does."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = [f"src/boat{number}.cpp" for number in range(8)]


def ninja():
    """How ninja is started; `None` where it is not there."""
    found = shutil.which("ninja")
    if found:
        return [found]
    try:
        import ninja as module
    except ImportError:
        return None
    return [str(Path(module.BIN_DIR) / "ninja")]


class Build(build_ext):
    """Compiles with as many jobs as there are cores, where there is ninja."""

    def build_extension(self, ext):
        command = ninja()
        if command is None:
            print("no ninja: compiling one file after another", file=sys.stderr)
            return super().build_extension(ext)
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        # As setuptools compiles and links, so that nothing differs but the number of jobs.
        compiler = getattr(self.compiler, "compiler_so_cxx", self.compiler.compiler_so)
        linker = getattr(self.compiler, "linker_so_cxx", self.compiler.linker_so)
        include = ["-I", sysconfig.get_path("include"), *ext.extra_compile_args]
        lines = [
            "rule compile",
            f"  command = {' '.join([*compiler, *include])} -c $in -o $out",
            "rule link",
            f"  command = {' '.join(linker)} $in -o $out",
        ]
        objects = []
        for source in ext.sources:
            made = folder / f"{Path(source).stem}.o"
            lines.append(f"build {made}: compile {Path(source).resolve()}")
            objects.append(str(made))
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        library.parent.mkdir(parents=True, exist_ok=True)
        lines.append(f"build {library}: link {' '.join(objects)}")
        (folder / "build.ninja").write_text("\n".join(lines) + "\n")
        subprocess.run([*command, "-C", str(folder)], check=True)


setup(
    ext_modules=[
        Extension("fleet", SOURCES, depends=["src/boat.hpp"], extra_compile_args=["-O1", "-std=c++17"]),
    ],
    cmdclass={"build_ext": Build},
)
