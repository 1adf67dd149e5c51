# Writes OUTPUT, a C++ file with the texts of SOURCES (python files of one package), in their order.
# HEADER declares EmbeddedModule and embeddedModules() in the namespace isopool::NAMESPACE.
# cmake -D OUTPUT=... -D SOURCES="a.py;b.py" -D HEADER=... -D NAMESPACE=... -P embed_python.cmake

set(arrays "")
set(entries "")
foreach(source IN LISTS SOURCES)
  get_filename_component(module ${source} NAME_WE)
  file(READ ${source} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "const unsigned char text_${module}[] = {${bytes}0};\n")
  string(APPEND entries "    {\"${module}\", reinterpret_cast<const char*>(text_${module})},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by embed_python.cmake.
#include \"${HEADER}\"

namespace isopool::${NAMESPACE} {

namespace {
${arrays}
const EmbeddedModule kModules[] = {
${entries}};
}  // namespace

std::span<const EmbeddedModule> embeddedModules() { return kModules; }

}  // namespace isopool::${NAMESPACE}
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
