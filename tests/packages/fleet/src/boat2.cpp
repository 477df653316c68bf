#include "boat.hpp"

double boat2(int times) { return fleet::boat<200>(times); }
