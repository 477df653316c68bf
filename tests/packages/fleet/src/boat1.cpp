#include "boat.hpp"

double boat1(int times) { return fleet::boat<100>(times); }
