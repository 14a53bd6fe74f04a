# What all of our own code is compiled with, and the helpers that declare libraries and tests.
add_library(own_code INTERFACE)
target_compile_features(own_code INTERFACE cxx_std_20)
# -fPIC everywhere: one precompiled header serves libraries and programs alike.
target_compile_options(own_code INTERFACE $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-fPIC>>)
target_include_directories(own_code INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
if(CXXRUN_LINKER MATCHES "mold")
  target_link_options(own_code INTERFACE $<BUILD_INTERFACE:-fuse-ld=mold>)
elseif(CXXRUN_LINKER)
  target_link_options(own_code INTERFACE $<BUILD_INTERFACE:-fuse-ld=lld>)
endif()
if(CXXRUN_SANITIZE)
  # Warnings are errors in the other builds: instrumented code makes GCC warn of what is not there.
  target_compile_options(own_code INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CXXRUN_SANITIZE} -fno-omit-frame-pointer -g1 -Wno-error>)
  target_link_options(own_code INTERFACE -fsanitize=${CXXRUN_SANITIZE})
endif()

# own_library(NAME sources...): a static library of ours.
function(own_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC own_code)
endfunction()

# own_torch_target(NAME): shares one precompiled LibTorch header between the targets that include <torch/torch.h>.
function(own_torch_target name)
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:cxxrun_torch> $<INSTALL_INTERFACE:cxxrun::torch>)
  target_precompile_headers(${name} REUSE_FROM torch_pch)
  set_target_properties(${name} PROPERTIES UNITY_BUILD "${CXXRUN_UNITY}" UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# own_test(NAME [LABEL unit|process|multirank|gpu] [TIMEOUT seconds] SOURCES ... LIBS ...): one GoogleTest binary, one CTest case
# a test case.
function(own_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE own_code ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data" TEST_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    PROJECT_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # The longest ones first, so that none of them is left alone at the end.
  set(cost 1)
  if(ARG_LABEL STREQUAL "multirank")
    set(cost 100)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} COST ${cost}
    ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1;OMP_NUM_THREADS=1")
endfunction()

# own_rank_test(NAME RANKS "2;3" SOURCES ... LIBS ...): a GoogleTest binary that runs as every rank of a job started by cxxrun; it
# passes when all ranks pass.
function(own_rank_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "RANKS;SOURCES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE own_code ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
  add_dependencies(${name} cxxrun)
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.${ranks}_ranks COMMAND cxxrun --nproc_per_node=${ranks} --shutdown-timeout=5 $<TARGET_FILE:${name}> --gtest_brief=1)
    set_tests_properties(${name}.${ranks}_ranks PROPERTIES LABELS multirank TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2 COST 100)
  endforeach()
endfunction()
