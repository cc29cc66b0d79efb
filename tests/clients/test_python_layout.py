#!/usr/bin/env python3
"""Compare the Python package with the C headers and the build: structures, functions, versions and names.

test_python_layout.py CC INCLUDE-FOLDER PROJECT-VERSION SONAME MESON-BUILD-OF-THE-PACKAGE
"""
import re
import subprocess
import sys
import tempfile

from remo import _library, collective, node

cc, include, version, soname, package = sys.argv[1:]


def c_program(expected):
    """Return a program that prints each C expression whose value differs from the expected number."""
    lines = ['#include <remo/remo.h>', '#include <stddef.h>', '#include <stdio.h>', 'int main(void) {',
             'int wrong = 0;']
    for expression, value in expected.items():
        lines.append(f'if ((unsigned long long)({expression}) != {value}ull) wrong = 1, '
                     f'printf("%s is %llu, not {value}\\n", "{expression}", '
                     f'(unsigned long long)({expression}));')
    return '\n'.join(lines + ['return wrong;', '}'])


def expectations():
    for structure in _library.STRUCTURES:
        name = 'struct ' + structure._c_name_
        yield f'sizeof({name})', _library.ctypes.sizeof(structure)
        for field, _ in structure._fields_:
            yield f'offsetof({name}, {field})', getattr(structure, field).offset
            yield f'sizeof((({name} *)0)->{field})', getattr(structure, field).size
    for name, value in (('REMO_NODES_MAX', _library.NODES_MAX), ('REMO_FOREVER', _library.FOREVER),
                        ('REMO_WRITE_NOTIFY', 1), ('REMO_ATOMIC_VAR_STRIPED', 1)):
        yield name, value
    for enum, prefix in ((node.Fence, 'REMO_FENCE_'), (node.Peer, 'REMO_PEER_'),
                         (collective.Number, 'REMO_NUMBER_'), (collective.Reduction, 'REMO_REDUCTION_')):
        for member in enum:
            yield prefix + member.name, member.value


def declarations():
    """Yield each function of the headers: its name, and the types of its result and arguments, as text."""
    text = subprocess.run([cc, '-I', include, '-E', '-P', '-x', 'c', '-'], input='#include <remo/remo.h>',
                          text=True, check=True, capture_output=True).stdout
    pattern = r'visibility\("default"\)\)\)\s*([\w\s]+?[\s*]+)(remo_\w+)\s*\((.*?)\);'
    for result, name, arguments in re.findall(pattern, text, re.DOTALL):
        # An argument that is a function has arguments itself; it is passed as a pointer.
        arguments = re.sub(r'\(\*\w+\)\s*\([^)]*\)', '*', arguments)
        yield name, result, [] if arguments.strip() == 'void' else arguments.split(',')


def kind_of_c(text):
    """Return how a type of C is passed: nothing, a pointer, a structure, or an integer with its size and
    sign."""
    words = text.split()
    if '*' in text or '[' in text:
        return 'pointer'
    if 'struct' in words:
        return words[words.index('struct') + 1]
    kinds = {'void': 'nothing', 'int': 'i4', 'int32_t': 'i4', 'enum': 'i4', 'uint32_t': 'u4',
             'uint64_t': 'u8', 'size_t': 'u8'}
    return next((kinds[word] for word in words if word in kinds), text)


def kind_of_python(type_):
    """Return the same for a type of ctypes."""
    ctypes = _library.ctypes
    if type_ is None:
        return 'nothing'
    if issubclass(type_, ctypes.Structure):
        return type_._c_name_
    if not issubclass(type_, ctypes._SimpleCData) or type_ in (ctypes.c_void_p, ctypes.c_char_p):
        return 'pointer'
    return ('i' if type_(-1).value == -1 else 'u') + str(ctypes.sizeof(type_))


def wrong_functions():
    """Return the number of functions of the package that differ from their declaration."""
    found = {name: (kind_of_c(result), [kind_of_c(each) for each in arguments])
             for name, result, arguments in declarations()}
    wrong = 0
    for name, (result, *arguments) in _library.FUNCTIONS.items():
        expected = kind_of_python(result), [kind_of_python(each) for each in arguments]
        if found.get(name) != expected:
            wrong += 1
            print(f'{name}: {found.get(name)} in the header, {expected} in the package')
    print(len(_library.FUNCTIONS), 'functions compared')
    return wrong


with tempfile.TemporaryDirectory() as folder:
    source, program = folder + '/layout.c', folder + '/layout'
    expected = dict(expectations())
    with open(source, 'w', encoding='utf-8') as file:
        file.write(c_program(expected))
    subprocess.run([cc, '-I', include, source, '-o', program], check=True)
    status = subprocess.run([program], check=False).returncode
print(len(expected), 'numbers compared')
if wrong_functions():
    status = 1

if soname not in _library.SONAMES:
    print(f'the package does not load {soname}: correct SONAMES in clients/python/remo/_library.py')
    status = 1
with open(package, encoding='utf-8') as file:
    found = re.search(r"version: '([^']*)'", file.read()).group(1)
if found != version:
    print(f'{package} has version {found}, not {version}')
    status = 1
sys.exit(status)
