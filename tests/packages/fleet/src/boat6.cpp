#include "boat.hpp"

double boat6(int times) { return fleet::boat<600>(times); }
