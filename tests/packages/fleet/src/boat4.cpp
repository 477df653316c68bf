#include "boat.hpp"

double boat4(int times) { return fleet::boat<400>(times); }
