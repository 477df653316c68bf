#include "boat.hpp"

double boat3(int times) { return fleet::boat<300>(times); }
