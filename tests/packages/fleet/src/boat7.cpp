#include "boat.hpp"

double boat7(int times) { return fleet::boat<700>(times); }
