#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "boat.hpp"

double boat1(int), boat2(int), boat3(int), boat4(int), boat5(int), boat6(int), boat7(int);

// fleet.area(times): the sum over all files.
static PyObject* area(PyObject*, PyObject* times) {
    const long given = PyLong_AsLong(times);
    if (given == -1 && PyErr_Occurred()) return nullptr;
    const int n = static_cast<int>(given);
    return PyFloat_FromDouble(fleet::boat<0>(n) + boat1(n) + boat2(n) + boat3(n) + boat4(n) +
                              boat5(n) + boat6(n) + boat7(n));
}

static PyMethodDef methods[] = {
    {"area", area, METH_O, "The sum over all files, each so many times."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "fleet", "A fleet of templates.", -1, methods,
    nullptr, nullptr, nullptr, nullptr,
};

PyMODINIT_FUNC PyInit_fleet() { return PyModule_Create(&module); }
