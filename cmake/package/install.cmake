# SPDX-License-Identifier: MIT
# Headers, the CMake package and pkg-config files. Nothing installed names a folder of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(adacc_cmake_dir "${CMAKE_INSTALL_DATADIR}/cmake/adacc")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/adacc" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS adacc EXPORT adacc INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT adacc NAMESPACE adacc:: FILE adaccTargets.cmake DESTINATION "${adacc_cmake_dir}")

set(generated "${PROJECT_BINARY_DIR}/package")
# Below 1.0 a minor version may change the interface.
write_basic_package_version_file("${generated}/adaccConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${generated}/adaccConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/package/adaccConfig.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/package/components.cmake"
        DESTINATION "${adacc_cmake_dir}")

set(pkgconfig_dir "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig")
file(RELATIVE_PATH adacc_include_from_pc "${pkgconfig_dir}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
foreach(name IN ITEMS adacc adacc-eigen)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/package/${name}.pc.in" "${generated}/${name}.pc"
                 @ONLY)
  install(FILES "${generated}/${name}.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
endforeach()

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
