// Templates that take a compiler a second or two a file, and nearly nothing to run.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fleet {

// A sum over a map of vectors of a type of its own: each number is another class, and a map,
// a vector, a function and a sort of it.
template <int Number>
struct Sail {
    double width = Number;
    std::string name = std::to_string(Number);
    bool operator<(const Sail& other) const {
        return std::tie(width, name) < std::tie(other.width, other.name);
    }
};

template <int Number>
double area(int times) {
    std::map<Sail<Number>, std::vector<Sail<Number>>> rigged;
    std::function<void(int)> rig = [&](int at) {
        auto& sails = rigged[Sail<Number>{static_cast<double>(at), "sail"}];
        sails.emplace_back();
        std::stable_sort(sails.begin(), sails.end());
    };
    for (int at = 0; at < times; ++at) rig(at);
    double sum = 0;
    for (const auto& [first, sails] : rigged) {
        sum += first.width * static_cast<double>(sails.size());
    }
    return sum;
}

template <int From, int... Numbers>
double areas(int times, std::integer_sequence<int, Numbers...>) {
    return (area<From + Numbers>(times) + ... + 0.0);
}

// The areas of so many classes from a number on.
template <int From>
double boat(int times) {
    return areas<From>(times, std::make_integer_sequence<int, 2>{});
}

}  // namespace fleet
