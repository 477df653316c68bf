#include "boat.hpp"

double boat5(int times) { return fleet::boat<500>(times); }
